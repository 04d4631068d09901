-- Leaves of the queue: what each must have, and making one.
SET LOCAL search_path = pillarbox;

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

