-- Makes a database with our schema for one cell of the benchmark.
CREATE DATABASE {table} TEMPLATE bench_template STRATEGY WAL_LOG
