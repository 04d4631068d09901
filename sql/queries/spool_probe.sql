-- Proves that PostgreSQL takes writes and how long a commit takes: a record in the write-ahead log and nothing else.
SELECT pg_logical_emit_message(true, 'pillarbox', 'probe')
