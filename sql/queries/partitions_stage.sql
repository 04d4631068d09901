-- Makes a new leaf beside the queue, guarded like every leaf. Its CHECK says what its bound will say, word for word and
-- with its parents' part, so that attaching it reads no row. Its indexes have names that no index of the queue has: those
-- of a leaf that an older version renamed are still called after its old name.
CREATE TABLE pillarbox_repartition.{leaf} PARTITION OF pillarbox_repartition.queue_def {bound};
ALTER TABLE pillarbox_repartition.{leaf} ADD CONSTRAINT repartition_bound CHECK ({check});
SELECT pillarbox.queue_guard('pillarbox_repartition.{leaf}');
DO $$
DECLARE
    index regclass;
BEGIN
    FOR index IN SELECT indexrelid FROM pg_index WHERE indrelid = 'pillarbox_repartition.{leaf}'::regclass LOOP
        EXECUTE format('ALTER INDEX %s RENAME TO repartition_%s', index, index::oid);
    END LOOP;
    EXECUTE format('ALTER TABLE pillarbox_repartition.{leaf} OWNER TO %I',
                   (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'pillarbox.queue'::regclass));
END $$
