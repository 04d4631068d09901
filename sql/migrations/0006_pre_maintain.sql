-- Maintenance as functions, so that a worker or pg_cron does the very same. Each works in bounded batches, in id or time
-- order, and returns how much it did; none waits for a row somebody else holds.
SET LOCAL search_path = pillarbox;

-- Bodies whose last recipient left before the grace began; returns how many it dealt with. The counter only proposes: the
-- anti-join decides, so a miscount can keep a body too long but never lose one. The body of a dead letter stays for `keep`
-- after it died: its note moves to the day it may go, once, so that the next sweeps do not look at it.
CREATE FUNCTION maintain_sweep(at timestamptz, grace interval, keep interval, batch integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    ripe uuid[];
    locked uuid[];
    swept integer;
BEGIN
    -- The anti-join must see what was committed before the bodies were locked: an older snapshot would not.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'maintain_sweep needs READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
    END IF;
    SELECT array_agg(r.messages__id) INTO ripe
      FROM (SELECT messages__id FROM released WHERE ts < at - grace ORDER BY ts LIMIT batch FOR UPDATE SKIP LOCKED) AS r;
    -- Whoever gives one of these bodies a recipient at this moment has locked it: it is left alone.
    SELECT array_agg(m.id) INTO locked
      FROM (SELECT id FROM messages WHERE id = ANY (ripe) ORDER BY id FOR UPDATE SKIP LOCKED) AS m;
    WITH body AS MATERIALIZED (
        SELECT b.id, EXISTS (SELECT FROM queue q WHERE q.messages__id = b.id) AS needed,
               coalesce((SELECT max(a.finished) FROM archive a WHERE a.messages__id = b.id AND archive_is_dead(a.result)) + keep,
                        '-infinity') AS until
          FROM unnest(locked) AS b(id)
    ), kept AS (
        UPDATE released r SET ts = b.until FROM body b WHERE r.messages__id = b.id AND NOT b.needed AND b.until > at - grace
        RETURNING 1
    ), collected AS (
        DELETE FROM messages m USING body b WHERE m.id = b.id AND NOT b.needed AND b.until <= at - grace
    ), dropped AS (
        -- Also notes of bodies that a recipient needs, whose count was wrong, and of bodies somebody else took.
        DELETE FROM released r
         WHERE r.messages__id = ANY (ripe)
           AND (r.messages__id IN (SELECT b.id FROM body b WHERE b.needed OR b.until <= at - grace)
                OR NOT EXISTS (SELECT FROM messages m WHERE m.id = r.messages__id))
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM kept) + (SELECT count(*) FROM dropped) INTO swept;
    RETURN swept;
END $$;

-- What an operator set to DELETE or BOUNCE and nobody is sending at this moment. A recipient that was held because it
-- kept killing its worker finishes as lock_expired, whatever it was told to do.
CREATE FUNCTION maintain_finish(at timestamptz, who text, batch integer) RETURNS TABLE (result text, recipients bigint)
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT q.id FROM queue q
         WHERE q.status IN ('DELETE', 'BOUNCE') AND (q.lease_until IS NULL OR q.lease_until <= at)
         ORDER BY q.id LIMIT batch FOR UPDATE SKIP LOCKED
    ), finished AS (
        DELETE FROM queue q USING asked WHERE q.status IN ('DELETE', 'BOUNCE') AND q.id = asked.id RETURNING q.*
    ), archived AS (
        INSERT INTO archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                             senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                             retry_count, last_error, worker)
        SELECT f.id, f.messages__id, f.actionid, at,
               CASE WHEN f.metadata->>'_quarantineid' = 'poison' THEN 'lock_expired' WHEN f.status = 'DELETE' THEN 'deleted' ELSE 'bounced' END,
               f.ts, f.senderip, f.serverid, f.saslusername, f.senderlocalpart, f.senderdomain, f.recipientlocalpart, f.recipientdomain,
               f.size, f.metadata, f.transportid, f.jobid, f.priority, f.retry_count, f.last_error, who
          FROM finished f
        RETURNING archive.result
    )
    SELECT archived.result, count(*) FROM archived GROUP BY archived.result;
END $$;

-- Recipients whose claims ended `poison` times in a row without a result: whatever sends them dies of it. They are held,
-- with the reason, for a person to look at.
CREATE FUNCTION maintain_hold_poison(at timestamptz, poison integer, batch integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    held integer;
BEGIN
    WITH suspect AS MATERIALIZED (
        SELECT q.id FROM queue q
         WHERE q.status = 'DELIVER' AND q.next_retry <= at AND q.lease_until <= at AND q.lost_count + 1 >= poison
         ORDER BY q.id LIMIT batch FOR UPDATE SKIP LOCKED
    ), lost AS (
        INSERT INTO attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid,
                              senderdomain, recipientdomain, size, outcome, scope, uncertain, duration)
        SELECT at, q.id, q.messages__id, q.retry_count, q.token, q.worker, q.metadata->>'_partid', q.transportid, q.jobid,
               q.senderdomain, q.recipientdomain, q.size, 'lease_expired', 'us', true, at - q.last_retry
          FROM queue q JOIN suspect s ON s.id = q.id
         WHERE q.status = 'DELIVER'
    )
    UPDATE queue q
       SET status = 'HOLD', token = NULL, worker = NULL, lease_until = NULL, lost_count = 0,
           last_error = format('held: %s claims in a row ended without a result, the last by %s', q.lost_count + 1, q.worker),
           metadata = coalesce(q.metadata, '{}') || '{"_quarantineid": "poison"}'
      FROM suspect s
     WHERE q.status = 'DELIVER' AND q.id = s.id;
    GET DIAGNOSTICS held = ROW_COUNT;
    RETURN held;
END $$;

-- Wakes the workers of partitions in which mail has been due for longer than `overdue`: a lost notification.
CREATE FUNCTION maintain_renotify(at timestamptz, overdue interval, batch integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    partid text;
    woken integer := 0;
BEGIN
    FOR partid IN
        SELECT DISTINCT coalesce(oldest.partid, '') FROM (
            SELECT q.metadata->>'_partid' AS partid FROM queue q
             WHERE q.status = 'DELIVER' AND q.priority = 0 AND q.next_retry <= at - overdue AND (q.lease_until IS NULL OR q.lease_until <= at)
             ORDER BY q.next_retry, q.id LIMIT batch) AS oldest
    LOOP
        PERFORM pg_notify('pillarbox', partid);
        woken := woken + 1;
    END LOOP;
    RETURN woken;
END $$;

-- Drops the days of history that ended more than `keep` ago; at most one of each table a call, because it needs a lock
-- nobody may hold, and gives up after lock_timeout rather than make everybody wait behind it.
CREATE FUNCTION maintain_history_drop(at timestamptz, keep interval) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    day regclass;
    dropped integer := 0;
BEGIN
    FOR day IN
        SELECT min(c.oid::regclass::text)::regclass
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent IN ('attempts'::regclass, 'archive'::regclass)
           AND c.relname ~ '_\d{8}$'
           AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (at - keep) AT TIME ZONE 'UTC'
         GROUP BY i.inhparent
    LOOP
        EXECUTE format('DROP TABLE %s', day);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- Leaves with so many dead rows that waiting for autovacuum is worse than looking now. VACUUM cannot run in a function.
CREATE VIEW maintain_vacuum AS
SELECT s.relname::text AS leaf, s.n_dead_tup AS dead
  FROM pg_stat_user_tables s
 WHERE s.schemaname = 'pillarbox' AND (s.relname LIKE 'queue\_%' OR s.relname IN ('messages', 'refcounts', 'released'));
