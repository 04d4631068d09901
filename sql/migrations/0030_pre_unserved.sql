-- Mail that no worker serves, so that figures and alarms can tell of it: each worker knows its own condition only.
SET LOCAL search_path = pillarbox;

-- Maintenance notes the longest due of each leaf and partition; every worker withdraws, with each beat, what its own condition
-- selects. What stays is what no living worker selects, whoever that worker is: nobody runs another's condition.
CREATE TABLE unserved (
    queue__id bigint      PRIMARY KEY,
    leaf      text        NOT NULL,
    partid    text        NOT NULL,  -- '' for none
    due       timestamptz NOT NULL,
    noted     timestamptz NOT NULL   -- since when it stands here
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Notes what has been due for longer than `overdue`, `most` of each leaf and partition, and forgets what no longer is; it looks at
-- fifty times as many of each leaf and class, so that a backlog of one partition hides no other of its leaf; returns
-- how many stand there now. What stood there keeps its `noted`; what fell due before `since` is not looked for, and stays as
-- long as it is queued.
CREATE FUNCTION maintain_unserved(at timestamptz, overdue interval, most integer, since timestamptz DEFAULT '-infinity') RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    queued bigint[];
    ids bigint[];
    leaves text[];
    partids text[];
    dues timestamptz[];
BEGIN
    SELECT coalesce(array_agg(o.id ORDER BY o.id), '{}'), array_agg(o.leaf ORDER BY o.id), array_agg(coalesce(o.partid, '') ORDER BY o.id),
           array_agg(o.due ORDER BY o.id)
      INTO ids, leaves, partids, dues
      FROM (SELECT m.*, row_number() OVER (PARTITION BY m.leaf, m.partid ORDER BY m.due, m.id) AS place
              FROM maintain_overdue(at, overdue, 50 * most, since) m) AS o
     WHERE o.place <= most;
    queued := ARRAY(SELECT q.id FROM queue q WHERE q.status = 'DELIVER' AND q.id = ANY (ARRAY(SELECT f.queue__id FROM unserved f)));
    DELETE FROM unserved u WHERE u.queue__id IN (
        SELECT f.queue__id FROM unserved f
         WHERE f.queue__id <> ALL (ids) AND (f.due >= since OR f.queue__id <> ALL (queued))
         ORDER BY f.queue__id FOR UPDATE SKIP LOCKED);
    INSERT INTO unserved (queue__id, leaf, partid, due, noted)
        SELECT n.id, n.leaf, n.partid, n.due, at FROM unnest(ids, leaves, partids, dues) AS n(id, leaf, partid, due)
        ON CONFLICT (queue__id) DO NOTHING;
    RETURN cardinality(ids);
END $$;

REVOKE ALL ON FUNCTION maintain_unserved(timestamptz, interval, integer, timestamptz) FROM PUBLIC;
DO $$
BEGIN
    GRANT SELECT, DELETE, UPDATE (noted) ON unserved TO pillarbox_queued;  -- UPDATE, for the lock that withdrawing takes
    GRANT SELECT ON unserved TO pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION maintain_unserved TO pillarbox_queued, pillarbox_maintainer;
EXCEPTION WHEN undefined_object OR insufficient_privilege THEN
    RAISE NOTICE 'roles are left out, as when they were made';
END $$;
