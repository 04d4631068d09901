-- Leaves of the queue: the requirements for each, and making one.
--
-- Statement triggers with transition tables count: a hold or release (an UPDATE that moves the row) fires neither, so
-- nothing is counted down and up again; row triggers would see DELETE first and lose the body.
SET LOCAL search_path = pillarbox;

-- Counts recipients that have arrived, and refuses those that may not begin as they do. Every message pays for each statement
-- here, so the first one checks the usual case: all recipients begin as DELIVER, which is legal, and this transaction wrote
-- all bodies. No other transaction sees such a body, so it needs no lock; the other bodies are left to refcount_up.
CREATE FUNCTION queue_arrived() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
DECLARE
    bodies uuid[];
    rows integer[];
    all_deliver boolean;
    all_written boolean;
    announced boolean;
    found_bodies integer;
    ended text := coalesce(current_setting('pillarbox.ended', true), '');
BEGIN
    SELECT array_agg(c.id), array_agg(c.n), bool_and(c.deliver), bool_and(coalesce(c.written, false)),
           (SELECT EXISTS (SELECT FROM webhooks w WHERE 'accepted' = ANY (w.events)))
      INTO bodies, rows, all_deliver, all_written, announced
      FROM (SELECT a.messages__id AS id, count(*)::integer AS n, bool_and(a.status = 'DELIVER') AS deliver,
                   (SELECT m.xmin = pg_current_xact_id()::xid AND m.ts = now() FROM messages m WHERE m.id = a.messages__id) AS written
              FROM arrived a GROUP BY a.messages__id ORDER BY a.messages__id) AS c;
    IF bodies IS NULL THEN
        RETURN NULL;
    END IF;
    -- IF inside IF, because a condition with a subquery is a statement, even where its first half is false.
    IF NOT all_deliver THEN
        IF EXISTS (SELECT FROM arrived WHERE NOT EXISTS
                      (SELECT FROM status_transitions t WHERE t.previous IS NULL AND t.next = arrived.status)) THEN
            RAISE EXCEPTION 'a new queue row begins as DELIVER or HOLD'
                USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
        END IF;
    END IF;
    IF ended <> '' THEN
        IF EXISTS (SELECT FROM arrived WHERE id = ANY (string_to_array(ended, ',')::bigint[])) THEN
            RAISE EXCEPTION 'a queue row that was to be deleted or bounced cannot come back'
                USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
        END IF;
    END IF;
    IF current_setting('pillarbox.moved', true) = 'yes' THEN
        found_bodies := refcount_anew(bodies);
    ELSIF all_written THEN
        WITH noted AS (
            DELETE FROM released r WHERE r.messages__id = ANY (bodies)
        )
        INSERT INTO refcounts AS r SELECT c.id, c.n FROM unnest(bodies, rows) AS c(id, n)
            ON CONFLICT (messages__id) DO UPDATE SET refcount = r.refcount + EXCLUDED.refcount;
        found_bodies := cardinality(bodies);
    ELSE
        found_bodies := refcount_up(bodies, rows);
    END IF;
    -- In place of a foreign key, which would lock every body once more for every recipient.
    IF found_bodies <> cardinality(bodies) THEN
        RAISE EXCEPTION 'a queue row names a message that does not exist' USING ERRCODE = 'foreign_key_violation';
    END IF;
    IF announced THEN
        INSERT INTO milestones (kind, queue__id, messages__id)
        SELECT 'accepted', a.id, a.messages__id FROM arrived a WHERE NOT coalesce(a.metadata ?| '{_copyof,_requeued}', false);
    END IF;
    RETURN NULL;
END $$;

-- Counts recipients that have left, and notes the bodies that no recipient needs any more. Nearly always these are all, which
-- is one DELETE. Without bitmaps it goes in id order.
CREATE FUNCTION queue_left() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    bodies uuid[];
    rows integer[];
    ending boolean;
    noted integer;
BEGIN
    SELECT array_agg(c.id), array_agg(c.n), bool_or(c.ending) INTO bodies, rows, ending
      FROM (SELECT d.messages__id AS id, count(*)::integer AS n, bool_or(d.status IN ('DELETE', 'BOUNCE')) AS ending
              FROM departed d GROUP BY d.messages__id ORDER BY d.messages__id) AS c;
    IF bodies IS NULL THEN
        RETURN NULL;
    END IF;
    -- DELETE and BOUNCE are the end of a row. A transaction that takes it out and puts it back, to get round the trigger on
    -- UPDATE, is refused in queue_arrived by this note; one that puts it back first is refused here. The note is empty for
    -- every other way a row can leave.
    IF ending THEN
        IF EXISTS (SELECT FROM queue q WHERE q.id = ANY (ARRAY(SELECT d.id FROM departed d WHERE d.status IN ('DELETE', 'BOUNCE')))) THEN
            RAISE EXCEPTION 'a queue row that was to be deleted or bounced cannot stay as another'
                USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
        END IF;
        PERFORM set_config('pillarbox.ended', concat_ws(',', nullif(current_setting('pillarbox.ended', true), ''),
            (SELECT string_agg(id::text, ',') FROM departed WHERE status IN ('DELETE', 'BOUNCE'))), true);
    END IF;
    IF current_setting('pillarbox.moved', true) = 'yes' THEN
        PERFORM refcount_anew(bodies);
        RETURN NULL;
    END IF;
    WITH gone AS (
        DELETE FROM refcounts r USING unnest(bodies, rows) AS c(id, n)
         WHERE r.messages__id = ANY (bodies) AND r.messages__id = c.id AND r.refcount <= c.n RETURNING r.messages__id
    )
    INSERT INTO released SELECT messages__id, clock_timestamp() FROM gone
        ON CONFLICT (messages__id) DO UPDATE SET ts = EXCLUDED.ts;
    GET DIAGNOSTICS noted = ROW_COUNT;
    IF noted <> cardinality(bodies) THEN
        PERFORM refcount_down(bodies, rows);
    END IF;
    RETURN NULL;
END $$;

-- A statement trigger fires only on the table a statement names. So the root, the inner tables and every leaf each have
-- their own, and a statement aimed straight at a leaf counts exactly like one aimed at the root.
CREATE FUNCTION queue_guard(partition regclass) RETURNS void LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER queue_arrived AFTER INSERT ON %s REFERENCING NEW TABLE AS arrived
                    FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.queue_arrived()', partition);
    EXECUTE format('CREATE TRIGGER queue_left AFTER DELETE ON %s REFERENCING OLD TABLE AS departed
                    FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.queue_left()', partition);
    EXECUTE format('CREATE TRIGGER queue_truncated BEFORE TRUNCATE ON %s
                    FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.queue_refused()', partition);
    IF (SELECT relkind = 'r' FROM pg_class WHERE oid = partition) THEN
        EXECUTE format('ALTER TABLE %s ADD UNIQUE (id)', partition);
        -- Room on the page for a claim's new version of every row, which is longer than the row: at 70 three claims in five
        -- found none and wrote every index anew. Vacuum by count: a scale factor lets dead rows grow with the backlog.
        EXECUTE format('ALTER TABLE %s SET (fillfactor = 45, autovacuum_vacuum_scale_factor = 0,
            autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_scale_factor = 0.2,
            autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0)', partition);
    END IF;
END $$;

SELECT queue_guard(t::regclass) FROM unnest(ARRAY['queue', 'queue_hold', 'queue_def', 'queue_def_def']) AS t;

-- Makes the leaf queue_def_<suffix> for these partition ids; false when exactly that leaf is already there.
CREATE FUNCTION queue_leaf_create(suffix text, partids text[]) RETURNS boolean
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    leaf text := 'queue_def_' || suffix;
    bound text := (SELECT 'FOR VALUES IN (' || string_agg(quote_literal(p), ', ' ORDER BY p) || ')' FROM unnest(partids) AS p);
    present text := (SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = to_regclass('pillarbox.' || leaf));
BEGIN
    IF present = bound THEN
        RETURN false;
    ELSIF present IS NOT NULL THEN
        RAISE EXCEPTION 'partition % exists %, wanted %', leaf, present, bound USING ERRCODE = 'duplicate_table';
    END IF;
    EXECUTE format('CREATE TABLE %I PARTITION OF queue_def %s', leaf, bound);
    PERFORM queue_guard(leaf::regclass);
    RETURN true;
END $$;
