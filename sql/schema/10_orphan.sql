-- Orphans: recipients without a body, bodies without a recipient, and messages of which nothing is left.
SET LOCAL search_path = pillarbox;

-- Which messages that smtpd answered 250 this database does not know, asked after a failover: those of `ids` of which
-- nothing is left, no body, no recipient that waits, none that is finished. The body is looked for first, and is mostly
-- there; bodies that were swept have an archive row, and one whose row was lost has its recipient.
CREATE FUNCTION spool_vanished(ids uuid[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT asked.id FROM unnest(ids) AS asked(id)
     WHERE NOT EXISTS (SELECT FROM messages m WHERE m.id = asked.id)
       AND NOT EXISTS (SELECT FROM archive a WHERE a.messages__id = asked.id)
       AND NOT EXISTS (SELECT FROM queue q WHERE q.messages__id = asked.id)
$$;

-- Gives the sweep the bodies among `bodies` that no recipient needs and of which no note says so, whatever is counted;
-- returns them. Bodies that another session has locked are left alone, and those younger than an hour.
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

CREATE FUNCTION orphans_release(bodies uuid[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT * FROM orphans_release(bodies, now()) WHERE operator_checked() $$;

-- Holds those of these recipients that have no body and that no claim has, with the reason hold_missing_body gives to
-- the claimed; returns their ids.
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

CREATE FUNCTION orphans_hold(ids bigint[]) RETURNS SETOF bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT * FROM orphans_hold(ids, now()) WHERE operator_checked() $$;
