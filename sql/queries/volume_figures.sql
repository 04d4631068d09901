-- How much room PostgreSQL's volumes have, as reported; `fresh` is false where the reports have ended.
SELECT host, path, free, size, fresh, now() - seen AS age FROM pillarbox.volumes_seen ORDER BY free
