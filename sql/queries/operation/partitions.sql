-- Repartitioning, step by step, while mail flows.

-- name: partitions_analyze
-- Gives the planner figures about a new leaf before the first claim sees it.
ANALYZE pillarbox_repartition.{leaf}

-- name: partitions_attach
-- Puts a new leaf in place.
ALTER TABLE pillarbox_repartition.queue_def DETACH PARTITION pillarbox_repartition.{leaf};
ALTER TABLE pillarbox_repartition.{leaf} SET SCHEMA pillarbox;
ALTER TABLE pillarbox.queue_def ATTACH PARTITION pillarbox.{leaf} {bound};
ALTER TABLE pillarbox.{leaf} DROP CONSTRAINT repartition_bound

-- name: partitions_audit
-- The faults of the queue's tables, compared with the model and the root, missing or surplus, and their repairs: first
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

-- name: partitions_capture
-- From its commit on, every change of a row in this leaf is noted; it waits for the changes that are under way.
CREATE TRIGGER repartition_capture AFTER INSERT OR UPDATE OR DELETE ON pillarbox.{leaf}
    FOR EACH ROW EXECUTE FUNCTION pillarbox_repartition.captured();
INSERT INTO pillarbox_repartition.sources (leaf) VALUES ('pillarbox.{leaf}')

-- name: partitions_catch_up
-- Brings the copies of rows that changed meanwhile up to date.
SELECT pillarbox_repartition.catch_up({batch})

-- name: partitions_clear
-- Removes the workplace.
DROP SCHEMA pillarbox_repartition CASCADE

-- name: partitions_copy
-- Copies the next rows of an old leaf into the new ones.
SELECT pillarbox_repartition.copy('pillarbox.{leaf}', {batch})

-- name: partitions_detach
-- Takes an old leaf out and drops it; no row leaves the queue, so nothing is counted.
ALTER TABLE pillarbox.queue_def DETACH PARTITION pillarbox.{leaf};
DROP TABLE pillarbox.{leaf}

-- name: partitions_exclude
-- Holds everybody off, parent first as they come themselves.
LOCK TABLE {leaves} IN ACCESS EXCLUSIVE MODE

-- name: partitions_finish
-- Brings the last changed rows up to date, now that no client can change more.
SELECT pillarbox_repartition.finish({batch})

-- name: partitions_holders
-- The sessions that hold locks on these tables and since when, the oldest transaction first.
SELECT a.pid, a.application_name, a.state, extract(epoch FROM now() - a.xact_start)::integer AS seconds
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.relation = ANY (%(tables)s::regclass[]::oid[]) AND l.granted AND a.pid <> pg_backend_pid()
 GROUP BY a.pid, a.application_name, a.state, a.xact_start
 ORDER BY a.xact_start

-- name: partitions_leaves
-- The leaves of the queue with their bounds, an estimate of their rows, and their size on disk with indexes.
SELECT c.relname::text AS leaf, pg_get_expr(c.relpartbound, c.oid) AS bound, greatest(c.reltuples, 0)::bigint AS estimate,
       pg_total_relation_size(c.oid) AS bytes
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pillarbox.queue_def'::regclass
 ORDER BY c.relname COLLATE "C"

-- name: partitions_leftovers
-- The remains of an interrupted repartitioning: its triggers on leaves, its constraint on the default leaf, its schema.
SELECT 'capture' AS kind, c.relname::text AS leaf
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE t.tgname = 'repartition_capture' AND c.relnamespace = 'pillarbox'::regnamespace
UNION ALL
SELECT 'shield', c.relname::text
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
 WHERE k.conname = 'repartition_shield' AND c.relnamespace = 'pillarbox'::regnamespace
UNION ALL
SELECT 'schema', 'pillarbox_repartition' WHERE to_regnamespace('pillarbox_repartition') IS NOT NULL

-- name: partitions_lock
-- One repartitioning at a time; held until the transaction ends. A mode below ACCESS EXCLUSIVE, so that the transaction gets no
-- number, which would keep dead rows from vacuum.
LOCK TABLE pillarbox.repartition_lock IN SHARE UPDATE EXCLUSIVE MODE

-- name: partitions_lock_patience
-- This transaction waits for a lock for so long, and may stay idle with it for as long as a repartitioning takes.
SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN %(milliseconds)s::text ELSE '0' END, true)
  FROM pg_settings WHERE name IN ('lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')

-- name: partitions_model
-- A table such as pillarbox.queue_guard makes it now, for the rest of this transaction only.
CREATE TEMPORARY TABLE repartition_model (LIKE pillarbox.queue) ON COMMIT DROP;
SELECT pillarbox.queue_guard('pg_temp.repartition_model')

-- name: partitions_name_indexes
-- Names the indexes of a leaf after the leaf, and after the root's index each belongs to, so that no other leaf's are in
-- the way when a name is used again. In place of the end of a long name stands its digest, because leaves may begin alike. A
-- name that is taken gets a number.
DO $$
DECLARE
    one record;
    free text;
BEGIN
    FOR one IN
        SELECT w.id, w.id::regclass AS index,
               CASE WHEN octet_length(w.name) <= 60 THEN w.name
                    ELSE left(w.name, 43) || '_' || left(encode(sha256(convert_to(w.name, 'UTF8')), 'hex'), 16) END AS wanted
          FROM (SELECT i.indexrelid AS id,
                       '{leaf}_' || coalesce((SELECT r.relname FROM pg_class r WHERE r.oid = nullif(pg_partition_root(i.indexrelid), i.indexrelid)),
                                             'id_key') AS name
                  FROM pg_index i WHERE i.indrelid = 'pillarbox.{leaf}'::regclass) AS w
         ORDER BY w.id
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

-- name: partitions_prepare
-- Makes the workplace: a second, invisible queue_def for the new leaves, and what keeps it equal to the old ones.
CREATE SCHEMA pillarbox_repartition;

CREATE TABLE pillarbox_repartition.queue_def (LIKE pillarbox.queue INCLUDING ALL) PARTITION BY LIST ((metadata->>'_partid'));

-- The ids of rows that changed while they were copied. Unlogged: a crash ends the run, and the next begins again.
CREATE UNLOGGED TABLE pillarbox_repartition.changes (id bigint NOT NULL);

-- The old leaves, and up to which id each is copied.
CREATE TABLE pillarbox_repartition.sources (leaf regclass PRIMARY KEY, upto bigint NOT NULL DEFAULT -9223372036854775808);

CREATE FUNCTION pillarbox_repartition.captured() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox_repartition, pg_temp AS $$
BEGIN
    INSERT INTO changes (id) VALUES (coalesce(NEW.id, OLD.id));
    RETURN NULL;
END $$;

CREATE FUNCTION pillarbox_repartition.columns() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
     WHERE attrelid = 'pillarbox.queue'::regclass AND attnum > 0 AND NOT attisdropped
$$;

-- Copies the next rows of an old leaf, as they are, to where they belong; returns how many.
CREATE FUNCTION pillarbox_repartition.copy(source regclass, batch integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox_repartition, pg_temp AS $$
DECLARE
    copied integer;
    reached bigint;
BEGIN
    EXECUTE format('WITH batch AS MATERIALIZED (SELECT %1$s FROM ONLY %2$s WHERE id > $1 ORDER BY id LIMIT $2),
                         placed AS (INSERT INTO pillarbox_repartition.queue_def (%1$s) SELECT %1$s FROM batch ON CONFLICT DO NOTHING)
                    SELECT count(*), max(id) FROM batch', columns(), source)
       INTO copied, reached USING (SELECT upto FROM sources WHERE leaf = source), batch;
    UPDATE sources SET upto = reached WHERE leaf = source AND reached IS NOT NULL;
    RETURN copied;
END $$;

-- Brings the copies of changed rows up to date; returns how many changes it took. The state is read after the changes
-- are: what changes in between is noted again, so nothing is missed.
CREATE FUNCTION pillarbox_repartition.catch_up(batch integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox_repartition, pg_temp AS $$
DECLARE
    ids bigint[];
    taken integer;
    source regclass;
BEGIN
    WITH seen AS (DELETE FROM changes WHERE ctid = ANY (ARRAY(SELECT ctid FROM changes LIMIT batch)) RETURNING id)
    SELECT array_agg(DISTINCT id), count(*) INTO ids, taken FROM seen;
    DELETE FROM queue_def WHERE id = ANY (ids);
    FOR source IN SELECT leaf FROM sources LOOP
        EXECUTE format('INSERT INTO pillarbox_repartition.queue_def (%1$s) SELECT %1$s FROM ONLY %2$s WHERE id = ANY ($1) ON CONFLICT DO NOTHING',
                       columns(), source) USING ids;
    END LOOP;
    RETURN taken;
END $$;

-- The last of it, under the lock: few changes, or another try. If an old leaf was replaced meanwhile, the copy is
-- worthless.
CREATE FUNCTION pillarbox_repartition.finish(most integer) RETURNS void
LANGUAGE plpgsql SET search_path = pillarbox_repartition, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM sources s WHERE NOT EXISTS
                  (SELECT FROM pg_inherits i WHERE i.inhrelid = s.leaf AND i.inhparent = 'pillarbox.queue_def'::regclass)) THEN
        RAISE EXCEPTION 'the leaves were changed by somebody else meanwhile' USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM catch_up(most);
    IF EXISTS (SELECT FROM changes) THEN
        RAISE EXCEPTION 'more than % rows changed in the last moment', most USING ERRCODE = 'lock_not_available';
    END IF;
END $$;

-- name: partitions_rename
-- Gives a leaf that keeps its ids another name.
ALTER TABLE pillarbox.{leaf} RENAME TO {name}

-- name: partitions_rows
-- How many recipients each leaf holds of each partition id; reads every row there is.
SELECT c.relname::text AS leaf, q.partid, q.recipients
  FROM (SELECT tableoid, metadata->>'_partid' AS partid, count(*) AS recipients FROM pillarbox.queue_def GROUP BY 1, 2) AS q
  JOIN pg_class c ON c.oid = q.tableoid
 ORDER BY c.relname COLLATE "C", q.partid COLLATE "C"

-- name: partitions_settle
-- Lets a vacuum of these leaves end and keeps the next one out; sessions that read or write rows are not affected.
LOCK TABLE {leaves} IN SHARE UPDATE EXCLUSIVE MODE

-- name: partitions_shield
-- Promises, of the default leaf, what its bound says of it already; else attaching a leaf beside it reads all of it.
ALTER TABLE pillarbox.queue_def_def ADD CONSTRAINT repartition_shield CHECK ({check}) NOT VALID

-- name: partitions_shield_drop
-- Takes the promise back: the bound is enough.
ALTER TABLE pillarbox.queue_def_def DROP CONSTRAINT repartition_shield

-- name: partitions_shield_validate
-- Proves the promise while mail flows.
ALTER TABLE pillarbox.queue_def_def VALIDATE CONSTRAINT repartition_shield

-- name: partitions_sorted
-- Partition ids in the order in which PostgreSQL keeps them in bounds: that of the database's own collation.
SELECT id FROM unnest(%(ids)s::text[]) AS id ORDER BY id

-- name: partitions_stage
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

-- name: partitions_uncapture
-- Takes the note-taking off a leaf.
DROP TRIGGER repartition_capture ON pillarbox.{leaf}
