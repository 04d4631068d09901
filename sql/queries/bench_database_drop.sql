-- Drops a benchmark's database whoever is still connected.
DROP DATABASE IF EXISTS {table} WITH (FORCE)
