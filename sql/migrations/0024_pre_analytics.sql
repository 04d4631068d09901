-- Clean-up after an export: dropping days that were verified, and mending what belongs to nothing.
SET LOCAL search_path = pillarbox;

-- Drops one day of history if it ended more than `keep` ago and holds exactly `expected` rows; says whether it did. Writers of
-- that day wait for the counting, so that no late row is lost between it and the drop; nobody else does. Gives up after
-- lock_timeout rather than make everybody wait behind it.
CREATE FUNCTION history_drop_if_counted(history text, day date, expected bigint, at timestamptz, keep interval) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    leaf regclass := (SELECT c.oid FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                       WHERE i.inhparent IN ('attempts'::regclass, 'archive'::regclass)
                         AND c.relname = history || '_' || to_char(day, 'YYYYMMDD'));
    counted bigint;
BEGIN
    IF leaf IS NULL OR day + 1 > (at - keep) AT TIME ZONE 'UTC' THEN
        RETURN false;
    END IF;
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', leaf);
    EXECUTE format('SELECT count(*) FROM %s', leaf) INTO counted;
    IF counted <> expected THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE %s', leaf);
    RETURN true;
END $$;

-- Gives the sweep the bodies among `bodies` that no recipient needs and of which no note says so, whatever is counted;
-- returns them. Bodies that somebody has locked are left alone, and those younger than an hour.
CREATE FUNCTION orphans_release(bodies uuid[], at timestamptz) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    locked uuid[];
BEGIN
    SELECT array_agg(m.id) INTO locked
      FROM (SELECT id FROM messages WHERE id = ANY (bodies) AND ts < at - interval '1 hour' ORDER BY id
               FOR UPDATE SKIP LOCKED) AS m;
    -- A new statement, whose snapshot sees what was committed before the lock.
    RETURN QUERY
    WITH alone AS MATERIALIZED (
        SELECT b.id FROM unnest(locked) AS b(id)
         WHERE NOT EXISTS (SELECT FROM queue q WHERE q.messages__id = b.id)
           AND NOT EXISTS (SELECT FROM released r WHERE r.messages__id = b.id)
         ORDER BY b.id
    ), uncounted AS (
        DELETE FROM refcounts c USING alone a WHERE c.messages__id = a.id
    )
    INSERT INTO released (messages__id, ts) SELECT id, at FROM alone ON CONFLICT (messages__id) DO NOTHING RETURNING messages__id;
END $$;

-- Holds those of these recipients that have no body and that no claim has, with the reason hold_missing_body gives to the
-- claimed; returns their ids.
CREATE FUNCTION orphans_hold(ids bigint[], at timestamptz) RETURNS SETOF bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    WITH bodiless AS MATERIALIZED (
        SELECT q.id FROM queue q
         WHERE q.id = ANY (ids) AND q.status = 'DELIVER' AND q.token IS NULL AND q.ts <= at
           AND NOT EXISTS (SELECT FROM messages m WHERE m.id = q.messages__id)
         ORDER BY q.id FOR NO KEY UPDATE OF q SKIP LOCKED
    )
    UPDATE queue q
       SET status = 'HOLD', last_error = 'held: the message has no body',
           metadata = coalesce(q.metadata, '{}') || '{"_quarantineid": "body"}'
      FROM bodiless b
     WHERE q.id = ANY (ids) AND q.status = 'DELIVER' AND q.id = b.id
    RETURNING q.id
$$;

REVOKE ALL ON FUNCTION history_drop_if_counted, orphans_release, orphans_hold FROM PUBLIC;

DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION history_drop_if_counted, orphans_release, orphans_hold TO pillarbox_maintainer;
EXCEPTION WHEN undefined_object OR insufficient_privilege THEN
    RAISE NOTICE 'roles are left out, as when they were made';
END $$;
