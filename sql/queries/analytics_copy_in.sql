-- Writes rows of history that the generator made.
COPY {table} ({columns}) FROM STDIN (FORMAT csv)
