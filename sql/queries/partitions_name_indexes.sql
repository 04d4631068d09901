-- Names the indexes of a leaf after the leaf, and after the root's index each belongs to, so that no other leaf's are in
-- the way when a name is used again. A name that is taken gets a number.
DO $$
DECLARE
    one record;
    free text;
BEGIN
    FOR one IN
        SELECT i.indexrelid AS id, i.indexrelid::regclass AS index,
               left('{leaf}_' || coalesce((SELECT r.relname FROM pg_class r WHERE r.oid = nullif(pg_partition_root(i.indexrelid), i.indexrelid)),
                                          'id_key'), 60) AS wanted
          FROM pg_index i WHERE i.indrelid = 'pillarbox.{leaf}'::regclass ORDER BY i.indexrelid
    LOOP
        SELECT c.name INTO free
          FROM (SELECT n, one.wanted || CASE n WHEN 0 THEN '' ELSE n::text END AS name FROM generate_series(0, 99) AS n) AS c
         WHERE NOT EXISTS (SELECT FROM pg_class x WHERE x.relname = c.name AND x.relnamespace = 'pillarbox'::regnamespace
                                                    AND x.oid <> one.id)
         ORDER BY c.n LIMIT 1;
        CONTINUE WHEN free = (SELECT x.relname FROM pg_class x WHERE x.oid = one.id);
        EXECUTE format('ALTER INDEX %s RENAME TO %I', one.index, free);
    END LOOP;
END $$
