-- Counting bodies, and refusing illegal moves. Every function names its search_path, so that nothing a caller sets can
-- redirect it.
--
-- Statement triggers with transition tables: a hold or release (an UPDATE that moves the row) fires neither, so nothing
-- is counted down and up again; row triggers would see DELETE first and lose the body. They only count: the sweep
-- collects. Bodies come in id order, so two workers that finish recipients of the same messages do not deadlock.
--
-- A session keeps the plans of these functions, and the first may be made while the tables are empty. `id = ANY` and no
-- Seq Scan leave one plan that is right at any size: one walk along the primary key, for the ids at hand and no others.

SET LOCAL search_path = pillarbox;

ALTER TABLE queue ADD CONSTRAINT queue_lease CHECK (
    (token IS NULL) = (worker IS NULL) AND (token IS NULL) = (lease_until IS NULL) AND retry_count >= 0 AND lost_count >= 0);

-- Recipients have arrived: adds `by` to the counts of these bodies; returns how many of the bodies there are.
--
-- A body this transaction did not write itself is locked against the sweep, which locks before it looks for recipients: it
-- either sees these, or has taken the body and it is not found here. Only what was locked is counted as found: a body that is
-- committed while this waits for its count is not. Everybody locks messages before refcounts.
-- `ts` beside xmin, for ids of transactions come round again after 2^32.
CREATE FUNCTION refcount_up(bodies uuid[], by integer[]) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    older uuid[];
BEGIN
    SELECT array_agg(m.id) INTO older FROM (
        SELECT id FROM messages WHERE id = ANY (bodies) AND (xmin <> pg_current_xact_id()::xid OR ts <> now())
         ORDER BY id FOR KEY SHARE) AS m;
    INSERT INTO refcounts AS r SELECT c.id, c.n FROM unnest(bodies, by) AS c(id, n)
        ON CONFLICT (messages__id) DO UPDATE SET refcount = r.refcount + EXCLUDED.refcount;
    IF older IS NOT NULL THEN
        -- Writing a note finds the one that a snapshot is too old to see: SQLSTATE 40001, where DELETE would leave it.
        INSERT INTO released SELECT b.id, clock_timestamp() FROM unnest(older) AS b(id) ON CONFLICT (messages__id) DO NOTHING;
    END IF;
    DELETE FROM released r WHERE r.messages__id = ANY (bodies);
    RETURN (SELECT count(*) FROM messages m WHERE m.id = ANY (older)
                OR m.id = ANY (bodies) AND m.xmin = pg_current_xact_id()::xid AND m.ts = now());
END $$;

-- Recipients have left: takes `by` from the counts, and notes the bodies nobody needs any more. Nearly always these are all,
-- which is one DELETE. Without bitmaps every plan goes in id order.
CREATE FUNCTION refcount_down(bodies uuid[], by integer[]) RETURNS void
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    noted integer;
BEGIN
    WITH gone AS (
        DELETE FROM refcounts r USING unnest(bodies, by) AS c(id, n)
         WHERE r.messages__id = ANY (bodies) AND r.messages__id = c.id AND r.refcount <= c.n RETURNING r.messages__id
    )
    INSERT INTO released SELECT messages__id, clock_timestamp() FROM gone
        ON CONFLICT (messages__id) DO UPDATE SET ts = EXCLUDED.ts;
    GET DIAGNOSTICS noted = ROW_COUNT;
    IF noted = cardinality(bodies) THEN
        RETURN;
    END IF;
    -- Two that take the last recipients of a body at the same time each saw the other's: the later of them comes to zero here.
    UPDATE refcounts r SET refcount = r.refcount - c.n FROM unnest(bodies, by) AS c(id, n)
     WHERE r.messages__id = ANY (bodies) AND r.messages__id = c.id;
    DELETE FROM refcounts r WHERE r.messages__id = ANY (bodies) AND r.refcount <= 0;
    INSERT INTO released SELECT b.id, clock_timestamp() FROM unnest(bodies) AS b(id)
     WHERE NOT EXISTS (SELECT FROM refcounts r WHERE r.messages__id = b.id)
        ON CONFLICT (messages__id) DO NOTHING;
END $$;

-- Counts the recipients of these bodies anew; returns how many of the bodies there are. For a transaction that has moved
-- rows, since the transition tables of a MERGE hold the rows its UPDATE moved as well, as if they had left or arrived
-- (measured on 15 and 18), and for an operator after a miscount. Bodies and counts are locked first, hence whoever else
-- changes their number either is seen or adds to this one later.
CREATE FUNCTION refcount_anew(bodies uuid[]) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    there uuid[];
BEGIN
    SELECT array_agg(m.id) INTO there FROM (SELECT id FROM messages WHERE id = ANY (bodies) ORDER BY id FOR UPDATE) AS m;
    PERFORM FROM refcounts r WHERE r.messages__id = ANY (there) ORDER BY r.messages__id FOR UPDATE;
    WITH counted AS MATERIALIZED (
        SELECT b.id, (SELECT count(*) FROM queue q WHERE q.messages__id = b.id)::integer AS n FROM unnest(there) AS b(id)
    ), gone AS (
        DELETE FROM refcounts r USING counted c WHERE r.messages__id = ANY (there) AND r.messages__id = c.id AND c.n = 0
    ), noted AS (
        INSERT INTO released SELECT c.id, clock_timestamp() FROM counted c WHERE c.n = 0
            ON CONFLICT (messages__id) DO NOTHING
    ), needed AS (
        DELETE FROM released r USING counted c WHERE r.messages__id = ANY (there) AND r.messages__id = c.id AND c.n > 0
    )
    INSERT INTO refcounts SELECT c.id, c.n FROM counted c WHERE c.n > 0
        ON CONFLICT (messages__id) DO UPDATE SET refcount = EXCLUDED.refcount;
    RETURN coalesce(cardinality(there), 0);
END $$;

CREATE FUNCTION queue_arrived() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    bodies uuid[];
    rows integer[];
    found_bodies integer;
BEGIN
    IF EXISTS (SELECT FROM arrived WHERE NOT EXISTS
                  (SELECT FROM status_transitions t WHERE t.previous IS NULL AND t.next = arrived.status)) THEN
        RAISE EXCEPTION 'a new queue row begins as DELIVER or HOLD'
            USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
    END IF;
    IF coalesce(current_setting('pillarbox.ended', true), '') <> '' AND EXISTS (
           SELECT FROM arrived WHERE id = ANY (string_to_array(current_setting('pillarbox.ended', true), ',')::bigint[])) THEN
        RAISE EXCEPTION 'a queue row that was to be deleted or bounced cannot come back'
            USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
    END IF;
    SELECT array_agg(c.id ORDER BY c.id), array_agg(c.n ORDER BY c.id) INTO bodies, rows
      FROM (SELECT messages__id AS id, count(*)::integer AS n FROM arrived GROUP BY 1) AS c;
    IF bodies IS NULL THEN
        RETURN NULL;
    END IF;
    IF current_setting('pillarbox.moved', true) = 'yes' THEN
        found_bodies := refcount_anew(bodies);
    ELSE
        found_bodies := refcount_up(bodies, rows);
    END IF;
    -- In place of a foreign key, which would lock every body once more for every recipient.
    IF found_bodies <> cardinality(bodies) THEN
        RAISE EXCEPTION 'a queue row names a message that does not exist' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION queue_left() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    bodies uuid[];
    rows integer[];
BEGIN
    -- DELETE and BOUNCE are the end of a row. Whoever takes it out and puts it back in one transaction, to get round the
    -- trigger on UPDATE, meets this note in queue_arrived; whoever puts it back first meets it here. It is empty for every
    -- other way a row can leave.
    IF EXISTS (SELECT FROM departed WHERE status IN ('DELETE', 'BOUNCE')) THEN
        IF EXISTS (SELECT FROM queue q WHERE q.id = ANY (ARRAY(SELECT d.id FROM departed d WHERE d.status IN ('DELETE', 'BOUNCE')))) THEN
            RAISE EXCEPTION 'a queue row that was to be deleted or bounced cannot stay as another'
                USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
        END IF;
        PERFORM set_config('pillarbox.ended', concat_ws(',', nullif(current_setting('pillarbox.ended', true), ''),
            (SELECT string_agg(id::text, ',') FROM departed WHERE status IN ('DELETE', 'BOUNCE'))), true);
    END IF;
    SELECT array_agg(c.id ORDER BY c.id), array_agg(c.n ORDER BY c.id) INTO bodies, rows
      FROM (SELECT messages__id AS id, count(*)::integer AS n FROM departed GROUP BY 1) AS c;
    IF bodies IS NULL THEN
        RETURN NULL;
    ELSIF current_setting('pillarbox.moved', true) = 'yes' THEN
        PERFORM refcount_anew(bodies);
    ELSE
        PERFORM refcount_down(bodies, rows);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION queue_moved() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF OLD.status IS DISTINCT FROM NEW.status
       AND NOT EXISTS (SELECT FROM status_transitions WHERE previous = OLD.status AND next = NEW.status) THEN
        RAISE EXCEPTION 'queue row % cannot go from % to %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
    END IF;
    PERFORM set_config('pillarbox.moved', 'yes', true);  -- see refcount_anew
    RETURN NEW;
END $$;

CREATE FUNCTION queue_refused() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: it would miscount bodies', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER queue_status BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION queue_moved();
CREATE TRIGGER queue_partid BEFORE UPDATE OF metadata ON queue
    FOR EACH ROW WHEN (OLD.metadata->>'_partid' IS DISTINCT FROM NEW.metadata->>'_partid') EXECUTE FUNCTION queue_moved();
CREATE TRIGGER queue_identity BEFORE UPDATE OF id, messages__id ON queue
    FOR EACH ROW WHEN (OLD.id IS DISTINCT FROM NEW.id OR OLD.messages__id IS DISTINCT FROM NEW.messages__id)
    EXECUTE FUNCTION queue_refused();
