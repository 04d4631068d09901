-- History: the coming days, and the view people look at.
SET LOCAL search_path = pillarbox;

-- History by day (UTC): makes the days from today to `ahead` days on, and says how many it made. Two callers at once are
-- harmless: the lock lets one of them do it.
CREATE FUNCTION history_create(now timestamptz, ahead integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    history text;
    day text;
    midnight timestamptz;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('pillarbox.history_create'));
    FOREACH history IN ARRAY ARRAY['attempts', 'archive'] LOOP
        FOR d IN -1..ahead LOOP
            midnight := date_trunc('day', now, 'UTC') + make_interval(hours => 24 * d);  -- UTC days have 24 hours
            CONTINUE WHEN to_regclass(format('pillarbox.%s_%s', history, to_char(midnight AT TIME ZONE 'UTC', 'YYYYMMDD'))) IS NOT NULL;
            day := history || '_' || to_char(midnight AT TIME ZONE 'UTC', 'YYYYMMDD');
            -- Made apart and attached: that locks history against DDL only, while PARTITION OF would wait for every
            -- reader, and every writer behind it.
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', day, history);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                history, day, midnight, midnight + interval '24 hours');
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

-- What people and programs see: the stored status, refined by time.
CREATE VIEW queue_state AS
SELECT q.*, CASE WHEN q.status <> 'DELIVER' THEN q.status::text
                 WHEN q.lease_until > now() THEN 'SENDING'
                 WHEN q.next_retry <= now() THEN 'ACTIVE'
                 WHEN q.retry_count = 0 THEN 'SCHEDULED'
                 ELSE 'DEFER' END AS state
  FROM queue q;
