-- Finishes what was read.
SELECT pgmq.archive('bench', %(ids)s::bigint[])
