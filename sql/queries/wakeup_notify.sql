-- Wakes the workers of these partitions at commit: one notification a partition, never one a row.
SELECT pg_notify('pillarbox', partid) FROM unnest(%(partids)s::text[]) AS partid
