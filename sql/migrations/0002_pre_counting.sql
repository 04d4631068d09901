-- Counting bodies, and refusing illegal moves. Every function names its search_path, so that nothing a caller sets can
-- redirect it.
--
-- Statement triggers with transition tables: a hold or release (an UPDATE that moves the row) fires neither, so nothing
-- is counted down and up again; row triggers would see DELETE first and lose the body. They only count: the sweep
-- collects. Bodies are locked in id order, so two workers that finish recipients of the same messages cannot deadlock.
--
-- A session keeps the plans of these functions, and the first may be made while the tables are empty. `id = ANY` and no
-- Seq Scan leave one plan that is right at any size: one walk along the primary key, for the ids at hand and no others.

SET LOCAL search_path = pillarbox;

ALTER TABLE queue ADD CONSTRAINT queue_lease CHECK (
    (token IS NULL) = (worker IS NULL) AND (token IS NULL) = (lease_until IS NULL) AND retry_count >= 0 AND lost_count >= 0);

-- Adds `by` to the counts of these bodies; returns how many of them there are.
--
-- The transition tables of a MERGE hold the rows its UPDATE moved as well, as if they had left or arrived (measured on 15
-- and 18). So in a transaction that has moved rows, bodies are counted anew: they are locked first, hence whoever else
-- changes their number either is seen or adds to this one later.
CREATE FUNCTION queue_count(bodies uuid[], by integer[]) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    found_bodies integer;
BEGIN
    PERFORM FROM messages m WHERE m.id = ANY (bodies) ORDER BY m.id FOR NO KEY UPDATE;
    IF current_setting('pillarbox.moved', true) = 'yes' THEN
        UPDATE messages m SET refcount = c.n, released = CASE WHEN c.n = 0 THEN clock_timestamp() END
          FROM (SELECT b.id, (SELECT count(*) FROM queue q WHERE q.messages__id = b.id)::integer AS n FROM unnest(bodies) AS b(id)) AS c
         WHERE m.id = ANY (bodies) AND m.id = c.id;
    ELSE
        UPDATE messages m SET refcount = m.refcount + c.n, released = CASE WHEN m.refcount + c.n <= 0 THEN clock_timestamp() END
          FROM unnest(bodies, by) AS c(id, n)
         WHERE m.id = ANY (bodies) AND m.id = c.id;
    END IF;
    GET DIAGNOSTICS found_bodies = ROW_COUNT;
    RETURN found_bodies;
END $$;

CREATE FUNCTION queue_arrived() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    bodies uuid[];
    rows integer[];
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
    SELECT array_agg(c.id), array_agg(c.n) INTO bodies, rows
      FROM (SELECT messages__id AS id, count(*)::integer AS n FROM arrived GROUP BY 1) AS c;
    IF bodies IS NULL THEN
        RETURN NULL;
    END IF;
    -- In place of a foreign key, which would lock every body once more for every recipient.
    IF queue_count(bodies, rows) <> cardinality(bodies) THEN
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
    SELECT array_agg(c.id), array_agg(-c.n) INTO bodies, rows
      FROM (SELECT messages__id AS id, count(*)::integer AS n FROM departed GROUP BY 1) AS c;
    IF bodies IS NOT NULL THEN
        PERFORM queue_count(bodies, rows);
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
    PERFORM set_config('pillarbox.moved', 'yes', true);  -- see queue_count
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
