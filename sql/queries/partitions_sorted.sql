-- Partition ids in the order in which PostgreSQL keeps them in bounds: that of the database's own collation.
SELECT id FROM unnest(%(ids)s::text[]) AS id ORDER BY id
