-- Maintenance as functions, so that a worker or pg_cron does the very same. Each works in bounded batches, in id or
-- time order, and returns how much it did; none waits for a row that another session has locked.
--
-- Each reads what it needs by index, however long the queue and the history, and may be cut short at any call. Each is
-- there twice: with the server's clock, and, for the owner and the tests, with a time as an argument (05_history.sql says
-- why).
SET LOCAL search_path = pillarbox;

-- Bodies whose last recipient left before the grace began. The counter only proposes: the anti-join decides, so a
-- miscount can keep a body too long but never lose one. `since` is the time of the notes to begin at, which keeps the
-- scan off the index entries of deleted notes while a session holds an old snapshot. `looked` is how many notes it read,
-- `swept` how many of them are done, `reached` where the next call goes on.
--
-- A call takes at most `batch` notes, and bodies of 64 MiB together: to delete a body costs as much as it is long.
-- Everything is asked for by `id = ANY`, so that the plan a session keeps is right at any size. The dead letters of a
-- body are picked in the aggregate: as a condition they would let PostgreSQL walk the index of all dead letters for
-- each body. Days of the archive that are too old for a dead letter to be kept are not looked at.
CREATE FUNCTION maintain_sweep_since(at timestamptz, grace interval, keep interval, batch integer, since timestamptz,
                                     OUT looked integer, OUT swept integer, OUT reached timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    ripe uuid[];
    there uuid[];
    locked uuid[];
    needed uuid[];
    collected uuid[];
    kept uuid[];
    until timestamptz[];
BEGIN
    -- The anti-join must see what was committed before the bodies were locked: an older snapshot would not.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'maintain_sweep needs READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
    END IF;
    SELECT coalesce(array_agg(n.messages__id), '{}'), coalesce(max(n.ts), greatest(since, at - grace)) INTO ripe, reached
      FROM (SELECT r.messages__id, r.ts,
                   sum(coalesce((SELECT m.size FROM messages m WHERE m.id = r.messages__id), 0))
                       OVER (ORDER BY r.ts, r.messages__id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS octets_before
              FROM (SELECT o.messages__id, o.ts FROM released o WHERE o.ts < at - grace AND o.ts >= since
                     ORDER BY o.ts LIMIT batch FOR UPDATE SKIP LOCKED) AS r) AS n
     WHERE coalesce(n.octets_before, 0) < 64 * 1024 * 1024;
    looked := cardinality(ripe);
    -- A transaction that gives one of these bodies a recipient at this moment has locked it: it is left alone.
    locked := ARRAY(SELECT m.id FROM messages m WHERE m.id = ANY (ripe) ORDER BY m.id FOR UPDATE SKIP LOCKED);
    there := ARRAY(SELECT m.id FROM messages m WHERE m.id = ANY (ripe));
    needed := ARRAY(SELECT DISTINCT q.messages__id FROM queue q WHERE q.messages__id = ANY (locked));
    -- The body of a dead letter stays for `keep` after it died, and that of a notice until it is sent: its note moves to that day.
    WITH stays AS MATERIALIZED (
        SELECT s.id, max(s.until) AS until
          FROM (SELECT a.messages__id AS id, max(a.finished) FILTER (WHERE archive_is_dead(a.result)) + keep AS until
                  FROM archive a WHERE a.messages__id = ANY (locked) AND a.finished > at - grace - keep GROUP BY a.messages__id
                UNION ALL
                SELECT n.messages__id, at + interval '1 minute' FROM notices n WHERE n.messages__id = ANY (locked)) AS s
         GROUP BY s.id HAVING max(s.until) > at - grace
    )
    SELECT coalesce(array_agg(s.id), '{}'), coalesce(array_agg(s.until), '{}') INTO kept, until FROM stays s
     WHERE s.id <> ALL (needed);
    collected := ARRAY(SELECT b.id FROM unnest(locked) AS b(id) EXCEPT SELECT unnest(needed || kept));
    UPDATE released r SET ts = k.until FROM unnest(kept, until) AS k(id, until) WHERE r.messages__id = ANY (kept) AND r.messages__id = k.id;
    DELETE FROM messages m WHERE m.id = ANY (collected);
    -- Also notes of bodies that a recipient needs, whose count was wrong, and of bodies somebody else took.
    DELETE FROM released r
     WHERE r.messages__id = ANY (needed || collected || ARRAY(SELECT unnest(ripe) EXCEPT SELECT unnest(there)));
    GET DIAGNOSTICS swept = ROW_COUNT;
    swept := swept + cardinality(kept);
END $$;

CREATE FUNCTION maintain_sweep_since(grace interval, keep interval, batch integer, since timestamptz,
                                     OUT looked integer, OUT swept integer, OUT reached timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT * FROM maintain_sweep_since(now(), kept(grace), kept(keep), batch, since) WHERE operator_checked()
$$;

-- The same from the oldest note on.
CREATE FUNCTION maintain_sweep(at timestamptz, grace interval, keep interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS
$$ SELECT swept FROM maintain_sweep_since(at, grace, keep, batch, '-infinity') $$;

CREATE FUNCTION maintain_sweep(grace interval, keep interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT maintain_sweep(now(), kept(grace), kept(keep), batch) WHERE operator_checked() $$;

-- Finishes mail that an operator set to DELETE or BOUNCE and that is not being sent at this moment. A recipient that was
-- held because it kept killing its worker finishes as lock_expired in both cases. The sender of bounced mail is notified,
-- unless NOTIFY says no.
CREATE FUNCTION maintain_finish(at timestamptz, who text, batch integer) RETURNS TABLE (result text, recipients bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT q.id FROM queue q
         WHERE q.status IN ('DELETE', 'BOUNCE') AND (q.lease_until IS NULL OR q.lease_until <= at)
         ORDER BY q.id LIMIT batch FOR UPDATE SKIP LOCKED
    ), finished AS (
        -- An array, because a join could read all that waits, for each batch, once statistics know that it is much.
        DELETE FROM queue q WHERE q.status IN ('DELETE', 'BOUNCE') AND q.id = ANY (ARRAY(SELECT asked.id FROM asked)) RETURNING q.*
    ), bounced AS (
        INSERT INTO notices (ts, due, kind, messages__id, queue__id, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain,
                             metadata, reply_enhanced, reply_text, arrived)
        SELECT at, at, 'failed', f.messages__id, f.id, f.senderlocalpart, f.senderdomain, f.recipientlocalpart, f.recipientdomain,
               f.metadata, '5.7.1', coalesce('returned by the operator; before that: ' || f.last_error, 'returned by the operator'), f.ts
          FROM finished f
         WHERE f.status = 'BOUNCE' AND f.senderdomain IS NOT NULL
           AND coalesce(f.metadata->'_dsn'->'notify', '["FAILURE"]') ? 'FAILURE'
    ), archived AS (
        INSERT INTO archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                             senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                             retry_count, last_error, worker, msgid, subject)
        SELECT f.id, f.messages__id, f.actionid, at,
               CASE WHEN f.metadata->>'_quarantineid' = 'poison' THEN 'lock_expired' WHEN f.status = 'DELETE' THEN 'deleted' ELSE 'bounced' END,
               f.ts, f.senderip, f.serverid, f.saslusername, f.senderlocalpart, f.senderdomain, f.recipientlocalpart, f.recipientdomain,
               f.size, f.metadata, f.transportid, f.jobid, f.priority, f.retry_count, f.last_error, who, m.msgid, m.subject
          FROM finished f LEFT JOIN LATERAL message_headers(f.messages__id) m ON true
        RETURNING archive.result
    )
    SELECT archived.result, count(*) FROM archived GROUP BY archived.result;
END $$;

CREATE FUNCTION maintain_finish(who text, batch integer) RETURNS TABLE (result text, recipients bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT * FROM maintain_finish(now(), who, batch) WHERE operator_checked() $$;

-- Holds recipients whose claims ended `poison` times in a row without a result, because they kill every worker that sends
-- them, with the reason, for a person to look at. By the index of lost claims (queue_suspect): `poison` is at least 2,
-- since a row that no claim has taken over from a lost one is not in it.
CREATE FUNCTION maintain_hold_poison(at timestamptz, poison integer, batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    suspects bigint[];
    held integer;
BEGIN
    suspects := ARRAY(
        SELECT q.id FROM queue q
         WHERE q.status = 'DELIVER' AND q.lost_count > 0 AND q.next_retry <= at AND q.lease_until <= at AND q.lost_count + 1 >= poison
         ORDER BY q.next_retry, q.id LIMIT batch FOR UPDATE SKIP LOCKED);
    IF cardinality(suspects) = 0 THEN
        RETURN 0;
    END IF;
    INSERT INTO attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid,
                          senderdomain, recipientdomain, size, outcome, scope, uncertain, duration)
    SELECT at, q.id, q.messages__id, q.retry_count, q.token, q.worker, q.metadata->>'_partid', q.transportid, q.jobid,
           q.senderdomain, q.recipientdomain, q.size, 'lease_expired', 'us', true, at - q.last_retry
      FROM queue q
     WHERE q.status = 'DELIVER' AND q.id = ANY (suspects);
    UPDATE queue q
       SET status = 'HOLD', token = NULL, worker = NULL, lease_until = NULL, lost_count = 0,
           last_error = format('held: %s claims in a row ended without a result, the last by %s', q.lost_count + 1, q.worker),
           metadata = coalesce(q.metadata, '{}') || '{"_quarantineid": "poison"}'
     WHERE q.status = 'DELIVER' AND q.id = ANY (suspects);
    GET DIAGNOSTICS held = ROW_COUNT;
    RETURN held;
END $$;

CREATE FUNCTION maintain_hold_poison(poison integer, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT maintain_hold_poison(now(), poison, batch) WHERE operator_checked() $$;

-- The leaves of queue_def behind the leaf `after`, by name, at most `most`. From pg_inherits, because pg_partition_tree
-- locks every leaf.
CREATE FUNCTION maintain_leaves(after text, most integer) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    WITH RECURSIVE part AS (
        SELECT 'queue_def'::regclass::oid AS id
        UNION ALL
        SELECT i.inhrelid FROM pg_inherits i JOIN part p ON i.inhparent = p.id
    )
    SELECT c.relname::text FROM part p JOIN pg_class c ON c.oid = p.id
     WHERE c.relkind = 'r' AND c.relname > after::name ORDER BY c.relname LIMIT most
$$;

-- The server's clock was put back: by NTP, by an operator, by a failover to a host whose clock is behind. Mail that was
-- accepted, deferred or claimed by the clock before would wait until its time comes again, so its due time and the end of
-- its claim are put back too: each as far from now as it was from the acceptance or the claim that it counts from. Mail
-- that was to wait for a time of its sender's keeps it. Notices that were owed are owed now.
--
-- A call looks at `batch` recipients of one leaf, by id; `more` is whether there are others. How far it is stands in the
-- row `clock` of locks, so that another worker goes on after a crash, and `back` is by how much the clock is behind the
-- latest time that was read. That is noted once a minute, and by a worker that finds its last beat in the future.
CREATE FUNCTION maintain_clock(at timestamptz, batch integer, OUT moved integer, OUT more boolean, OUT back interval)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    minute CONSTANT interval := '1 minute';
    latest timestamptz := (SELECT l.until FROM locks l WHERE l.name = 'clock' AND l.holder IS NULL);
    leaf text;
    above bigint;
    looked bigint[];
BEGIN
    moved := 0;
    more := false;
    IF latest BETWEEN at - minute AND at + minute THEN
        RETURN;
    END IF;
    SELECT l.until, split_part(l.holder, ' ', 1)::bigint, substr(l.holder, strpos(l.holder, ' ') + 1) INTO latest, above, leaf
      FROM locks l WHERE l.name = 'clock' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF coalesce(latest, at) <= at + minute THEN
        UPDATE locks l SET until = at, holder = NULL WHERE l.name = 'clock';
        RETURN;
    END IF;
    back := latest - at;
    leaf := coalesce(leaf, (SELECT maintain_leaves('', 1)));
    BEGIN
        EXECUTE format('SELECT ARRAY(SELECT q.id FROM pillarbox.%I q WHERE q.id > $1 ORDER BY q.id LIMIT $2)', leaf)
           INTO looked USING coalesce(above, 0), batch;
        EXECUTE format(
            'UPDATE pillarbox.%1$I q
                SET next_retry = CASE WHEN q.next_retry > $2 THEN $2 + greatest(q.next_retry - greatest(q.ts, q.last_retry), ''0'') ELSE q.next_retry END,
                    lease_until = CASE WHEN q.lease_until > q.last_retry THEN $2 + (q.lease_until - q.last_retry) ELSE q.lease_until END
              WHERE q.id = ANY (ARRAY(
                    SELECT w.id FROM pillarbox.%1$I w
                     WHERE w.id = ANY ($1) AND coalesce(w.last_retry, w.ts) > $2 + $3
                       AND CASE WHEN w.last_retry IS NULL THEN w.next_retry > $2 AND w.next_retry <= w.ts + interval ''1 second''
                                ELSE w.next_retry > $2 OR w.lease_until > w.last_retry END
                     ORDER BY w.id FOR NO KEY UPDATE SKIP LOCKED))', leaf)
          USING looked, at, minute;
        GET DIAGNOSTICS moved = ROW_COUNT;
    EXCEPTION WHEN undefined_table OR internal_error THEN
        looked := '{}';  -- the leaves were cut anew at this moment
    END;
    more := true;
    IF cardinality(looked) < batch THEN
        leaf := (SELECT maintain_leaves(leaf, 1));
        looked := '{}';
    END IF;
    IF leaf IS NULL THEN
        UPDATE notices n SET due = at WHERE n.id = ANY (ARRAY(
            SELECT o.id FROM notices o WHERE o.due > at AND o.ts > at + minute ORDER BY o.due, o.id LIMIT batch FOR UPDATE SKIP LOCKED));
        more := FOUND;
    END IF;
    UPDATE locks l SET until = CASE WHEN more THEN latest ELSE at END,
                       holder = CASE WHEN leaf IS NOT NULL THEN format('%s %s', coalesce(looked[cardinality(looked)], 0), leaf)
                                     WHEN more THEN l.holder END
     WHERE l.name = 'clock';
END $$;

CREATE FUNCTION maintain_clock(batch integer, OUT moved integer, OUT more boolean, OUT back interval)
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT * FROM maintain_clock(now(), batch) WHERE operator_checked() $$;

CREATE FUNCTION workers_clock() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    UPDATE locks l SET until = OLD.seen WHERE l.name = 'clock' AND (l.until IS NULL OR l.until < OLD.seen);
    RETURN NULL;
END $$;
CREATE TRIGGER workers_clock AFTER UPDATE ON workers
    FOR EACH ROW WHEN (OLD.seen > NEW.seen + interval '1 minute') EXECUTE FUNCTION workers_clock();

-- Mail of these leaves that has been due for longer than `overdue`, since `since` or later, and is not claimed: of each
-- leaf and class of a claim the `most` longest due. Leaf by leaf, so that the backlog of one does not hide another's.
CREATE FUNCTION maintain_overdue(at timestamptz, overdue interval, most integer, since timestamptz, leaves text[])
RETURNS TABLE (leaf text, id bigint, partid text, due timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    each text;
    classes text := (
        SELECT string_agg(format('(SELECT $1, q.id, q.metadata->>''_partid'', q.next_retry FROM pillarbox.%%1$I q
                                    WHERE q.status = ''DELIVER'' AND %s
                                      AND q.next_retry <= $2 - $3 AND q.next_retry >= $5 AND (q.lease_until IS NULL OR q.lease_until <= $2)
                                    ORDER BY q.next_retry, q.id LIMIT $4)', class), ' UNION ALL ')
          FROM unnest(ARRAY['q.priority > 0', 'q.priority = 0 AND q.last_error IS NULL',
                            'q.priority = 0 AND q.last_error IS NOT NULL', 'q.priority < 0']) AS class);
BEGIN
    FOREACH each IN ARRAY leaves LOOP
        BEGIN
            RETURN QUERY EXECUTE format(classes, each) USING each, at, overdue, most, since;
        EXCEPTION WHEN undefined_table OR internal_error THEN
            NULL;  -- the leaves were cut anew at this moment
        END;
    END LOOP;
END $$;

-- Wakes the workers of partitions in which mail of any class has been due for longer than `overdue`: a lost
-- notification. `batch` is how many recipients of each leaf and class are looked at, `since` when they fell due at the
-- earliest. A call looks at `leaves` leaves behind `after` and locks no others; `reached` is where the next call goes on,
-- NULL behind the last leaf.
CREATE FUNCTION maintain_renotify_since(at timestamptz, overdue interval, batch integer, since timestamptz, after text,
                                        leaves integer, OUT woken integer, OUT reached text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    looked text[] := ARRAY(SELECT maintain_leaves(after, leaves));
    waiting text;
BEGIN
    woken := 0;
    FOR waiting IN SELECT DISTINCT coalesce(o.partid, '') FROM maintain_overdue(at, overdue, batch, since, looked) o ORDER BY 1 LOOP
        PERFORM notify_partition(waiting);
        woken := woken + 1;
    END LOOP;
    IF cardinality(looked) >= leaves THEN
        reached := looked[cardinality(looked)];
    END IF;
END $$;

CREATE FUNCTION maintain_renotify_since(overdue interval, batch integer, since timestamptz, after text, leaves integer,
                                        OUT woken integer, OUT reached text)
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT * FROM maintain_renotify_since(now(), kept(overdue), batch, since, after, leaves) $$;

-- The same in all leaves, whenever they fell due.
CREATE FUNCTION maintain_renotify(at timestamptz, overdue interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS
$$ SELECT woken FROM maintain_renotify_since(at, overdue, batch, '-infinity', '', NULL) $$;

CREATE FUNCTION maintain_renotify(overdue interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT maintain_renotify(now(), kept(overdue), batch) $$;

-- Notes mail that has been due for longer than `overdue`, `most` of each leaf and partition, and deletes notes of mail
-- that no longer is; it looks at fifty times as many of each leaf and class, so that only an older backlog as long as
-- that hides another partition of its leaf. Notes that stay keep their `noted`; mail that fell due before `since` is not looked for, and its
-- notes stay as long as it is queued. A call looks at `leaves` leaves behind `after`, locks no others and leaves their
-- notes alone; `noted` is how many notes those it looked at have now, `reached` where the next call goes on, NULL behind
-- the last leaf. The call that comes to the end deletes the notes of leaves that there are no more.
CREATE FUNCTION maintain_unserved_since(at timestamptz, overdue interval, most integer, since timestamptz, after text,
                                        leaves integer, OUT noted integer, OUT reached text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    looked text[] := ARRAY(SELECT maintain_leaves(after, leaves));
    ids bigint[];
    homes text[];
    partids text[];
    dues timestamptz[];
    old record;
    queued bigint[];
BEGIN
    SELECT coalesce(array_agg(o.id ORDER BY o.id), '{}'), array_agg(o.leaf ORDER BY o.id), array_agg(coalesce(o.partid, '') ORDER BY o.id),
           array_agg(o.due ORDER BY o.id)
      INTO ids, homes, partids, dues
      FROM (SELECT m.*, row_number() OVER (PARTITION BY m.leaf, m.partid ORDER BY m.due, m.id) AS place
              FROM maintain_overdue(at, overdue, 50 * most, since, looked) m) AS o
     WHERE o.place <= most;
    DELETE FROM unserved u WHERE u.queue__id IN (
        SELECT f.queue__id FROM unserved f
         WHERE f.leaf = ANY (looked) AND f.due >= since AND f.queue__id <> ALL (ids)
         ORDER BY f.queue__id FOR UPDATE SKIP LOCKED);
    FOR old IN SELECT f.leaf, array_agg(f.queue__id) AS noted FROM unserved f
                WHERE f.leaf = ANY (looked) AND f.due < since GROUP BY f.leaf LOOP
        BEGIN
            EXECUTE format('SELECT ARRAY(SELECT q.id FROM pillarbox.%I q WHERE q.status = ''DELIVER'' AND q.id = ANY ($1))', old.leaf)
               INTO queued USING old.noted;
        EXCEPTION WHEN undefined_table OR internal_error THEN
            queued := '{}';
        END;
        DELETE FROM unserved u WHERE u.queue__id IN (
            SELECT f.queue__id FROM unserved f
             WHERE f.leaf = old.leaf AND f.due < since AND f.queue__id <> ALL (queued)
             ORDER BY f.queue__id FOR UPDATE SKIP LOCKED);
    END LOOP;
    -- Mail whose leaf is another by now has been unserved as long as before.
    UPDATE unserved u SET leaf = n.leaf, partid = n.partid
      FROM (SELECT f.queue__id, m.leaf, m.partid
              FROM unserved f JOIN unnest(ids, homes, partids) AS m(id, leaf, partid) ON m.id = f.queue__id
             WHERE f.queue__id = ANY (ids) AND (f.leaf, f.partid) <> (m.leaf, m.partid)
             ORDER BY f.queue__id FOR UPDATE OF f SKIP LOCKED) AS n
     WHERE u.queue__id = n.queue__id;
    INSERT INTO unserved (queue__id, leaf, partid, due, noted)
        SELECT n.id, n.leaf, n.partid, n.due, at FROM unnest(ids, homes, partids, dues) AS n(id, leaf, partid, due)
        ON CONFLICT (queue__id) DO NOTHING;
    noted := cardinality(ids);
    IF cardinality(looked) >= leaves THEN
        reached := looked[cardinality(looked)];
    ELSE
        DELETE FROM unserved u WHERE u.queue__id IN (
            SELECT f.queue__id FROM unserved f WHERE f.leaf NOT IN (SELECT maintain_leaves('', NULL))
             ORDER BY f.queue__id FOR UPDATE SKIP LOCKED);
    END IF;
END $$;

CREATE FUNCTION maintain_unserved_since(overdue interval, most integer, since timestamptz, after text, leaves integer,
                                        OUT noted integer, OUT reached text)
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT * FROM maintain_unserved_since(now(), kept(overdue), most, since, after, leaves) $$;

-- The same in all leaves, whenever it fell due.
CREATE FUNCTION maintain_unserved(at timestamptz, overdue interval, most integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT noted FROM maintain_unserved_since(at, overdue, most, '-infinity', '', NULL) $$;

CREATE FUNCTION maintain_unserved(overdue interval, most integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT maintain_unserved(now(), kept(overdue), most) $$;

-- Leaves with so many dead rows that waiting for autovacuum is worse than looking now. VACUUM cannot run in a function.
CREATE VIEW maintain_vacuum AS
SELECT s.relname::text AS leaf, s.n_dead_tup AS dead
  FROM pg_stat_user_tables s
 WHERE s.schemaname = 'pillarbox' AND (s.relname LIKE 'queue\_%' OR s.relname IN ('messages', 'refcounts', 'released'));
