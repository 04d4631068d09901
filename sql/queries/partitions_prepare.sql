-- Makes the workplace: a second, invisible queue_def for the new leaves, and what keeps it equal to the old ones.
CREATE SCHEMA pillarbox_repartition;

CREATE TABLE pillarbox_repartition.queue_def (LIKE pillarbox.queue INCLUDING ALL) PARTITION BY LIST ((metadata->>'_partid'));

-- The ids of rows that changed while they were copied. Unlogged: a crash ends the run, and the next begins anew.
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

-- The last of it, under the lock: few changes, or another try. Whoever replaced an old leaf meanwhile has made the copy
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
