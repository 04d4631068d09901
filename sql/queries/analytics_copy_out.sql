-- Reads a range of pages of one day of history.
-- Pages rather than ids: attempts has no index by id, and a range of pages is read without one (TID Range Scan) in the
-- order it lies on disk. The instants leave one partition, whose pages these are.
COPY (SELECT {columns} FROM {table}
       WHERE {instant} >= {since} AND {instant} < {until} AND ctid >= {first}::tid AND ctid < {last}::tid{conditions})
  TO STDOUT (FORMAT csv)
