-- What the tables of the queue lack of what the model and the root have, or have too much of, and what mends it: first
-- what must be built outside a transaction, then the rest.
WITH tables AS (
    SELECT c.oid, c.relname::text AS leaf, t.level, t.isleaf, t.parentrelid, c.reloptions
      FROM pg_partition_tree('pillarbox.queue') t JOIN pg_class c ON c.oid = t.relid
), guards AS (
    SELECT tgname AS name, tgfoid AS function, tgoldtable IS NOT NULL OR tgnewtable IS NOT NULL AS counts,
           pg_get_triggerdef(oid) AS definition
      FROM pg_trigger WHERE tgrelid = 'pg_temp.repartition_model'::regclass
), faults AS (
    SELECT t.level, t.leaf, 'trigger' AS fault, g.name::text AS object, '{}'::text[] AS builds,
           regexp_replace(g.definition, ' ON \S+ ', format(' ON pillarbox.%I ', t.leaf)) AS mend
      FROM tables t, guards g
     WHERE NOT EXISTS (SELECT FROM pg_trigger x WHERE x.tgrelid = t.oid AND x.tgname = g.name)
    UNION ALL
    -- Row triggers are cloned from the root, but can be disabled on one leaf.
    SELECT t.level, t.leaf, 'disabled', x.tgname::text, '{}', format('ALTER TABLE pillarbox.%I ENABLE TRIGGER %I', t.leaf, x.tgname)
      FROM tables t JOIN pg_trigger x ON x.tgrelid = t.oid
     WHERE x.tgenabled <> 'O' AND (x.tgname IN (SELECT name FROM guards) OR x.tgname IN
              (SELECT tgname FROM pg_trigger WHERE tgrelid = 'pillarbox.queue'::regclass))
    UNION ALL
    SELECT t.level, t.leaf, 'twice', x.tgname::text, '{}', format('DROP TRIGGER %I ON pillarbox.%I', x.tgname, t.leaf)
      FROM tables t JOIN pg_trigger x ON x.tgrelid = t.oid
     WHERE x.tgfoid IN (SELECT function FROM guards WHERE counts) AND x.tgname NOT IN (SELECT name FROM guards) AND x.tgparentid = 0
    UNION ALL
    SELECT t.level, t.leaf, 'unique', 'id',
           ARRAY[format('DROP INDEX CONCURRENTLY IF EXISTS pillarbox.%I', t.leaf || '_id_key'),
                 format('CREATE UNIQUE INDEX CONCURRENTLY %I ON pillarbox.%I (id)', t.leaf || '_id_key', t.leaf)],
           format('ALTER TABLE pillarbox.%I ADD CONSTRAINT %I UNIQUE USING INDEX %2$I', t.leaf, t.leaf || '_id_key')
      FROM tables t
     WHERE t.isleaf AND NOT EXISTS (
           SELECT FROM pg_constraint k JOIN pg_index i ON i.indexrelid = k.conindid AND i.indisvalid
            WHERE k.conrelid = t.oid AND k.contype = 'u' AND pg_get_constraintdef(k.oid) = 'UNIQUE (id)')
    UNION ALL
    SELECT t.level, t.leaf, 'storage', wanted, '{}', format('ALTER TABLE pillarbox.%I SET (%s)', t.leaf, wanted)
      FROM tables t, unnest((SELECT reloptions FROM pg_class WHERE oid = 'pg_temp.repartition_model'::regclass)) AS wanted
     WHERE t.isleaf AND wanted <> ALL (coalesce(t.reloptions, '{}'))
    UNION ALL
    SELECT t.level, t.leaf, 'index', r.relname::text,
           CASE WHEN t.isleaf THEN
               ARRAY[format('DROP INDEX CONCURRENTLY IF EXISTS pillarbox.%I', made.name),
                     format('CREATE INDEX CONCURRENTLY %I ON pillarbox.%I %s', made.name, t.leaf, made.definition)]
           ELSE ARRAY[format('CREATE INDEX IF NOT EXISTS %I ON ONLY pillarbox.%I %s', made.name, t.leaf, made.definition)] END,
           -- The parent's index is the root's, that attached to the root's, or the one this audit makes.
           format('ALTER INDEX pillarbox.%I ATTACH PARTITION pillarbox.%I',
                  CASE WHEN t.level = 1 THEN r.relname ELSE coalesce(inner_index.name, made.inner_name) END, made.name)
      FROM tables t CROSS JOIN pg_index root JOIN pg_class r ON r.oid = root.indexrelid
     CROSS JOIN LATERAL (SELECT left(format('%s_%s', t.leaf, r.relname), 63) AS name,
                                left(format('%s_%s', (SELECT relname FROM pg_class WHERE oid = t.parentrelid), r.relname), 63) AS inner_name,
                                substring(pg_get_indexdef(root.indexrelid) FROM 'USING .*') AS definition) AS made
      LEFT JOIN LATERAL (SELECT x.relname AS name
                           FROM pg_partition_tree(root.indexrelid) p JOIN pg_index i ON i.indexrelid = p.relid JOIN pg_class x ON x.oid = p.relid
                          WHERE i.indrelid = t.parentrelid) AS inner_index ON true
     WHERE t.level > 0 AND root.indrelid = 'pillarbox.queue'::regclass AND NOT EXISTS (
           SELECT FROM pg_partition_tree(root.indexrelid) p JOIN pg_index i ON i.indexrelid = p.relid
            WHERE i.indrelid = t.oid AND (i.indisvalid OR NOT t.isleaf))
)
SELECT leaf, fault, object, builds, mend FROM faults ORDER BY level, leaf COLLATE "C", fault, object
