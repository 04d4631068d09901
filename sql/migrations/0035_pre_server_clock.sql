-- Maintenance goes by the server's clock for whoever works with granted rights: a caller's clock drops the history of years
-- to come. The functions that are given the time are for the owner, and for the tests.
SET LOCAL search_path = pillarbox;

-- A span of time that is kept. A negative one is another way to write a clock that is fast.
CREATE FUNCTION kept(span interval) RETURNS interval LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF span < interval '0' THEN
        RAISE EXCEPTION 'keeping for % is not possible', span USING ERRCODE = 'invalid_parameter_value', HINT = 'allowed: 0 and more';
    END IF;
    RETURN span;
END $$;

CREATE FUNCTION history_create(ahead integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT history_create(now(), ahead) $$;

CREATE FUNCTION maintain_sweep(grace interval, keep interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT maintain_sweep(now(), kept(grace), kept(keep), batch) $$;

CREATE FUNCTION maintain_sweep_since(grace interval, keep interval, batch integer, since timestamptz,
                                     OUT looked integer, OUT swept integer, OUT reached timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT * FROM maintain_sweep_since(now(), kept(grace), kept(keep), batch, since)
$$;

CREATE FUNCTION maintain_finish(who text, batch integer) RETURNS TABLE (result text, recipients bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT * FROM maintain_finish(now(), who, batch) $$;

CREATE FUNCTION maintain_hold_poison(poison integer, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT maintain_hold_poison(now(), poison, batch) $$;

CREATE FUNCTION maintain_renotify(overdue interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT maintain_renotify(now(), kept(overdue), batch) $$;

CREATE FUNCTION maintain_renotify_since(overdue interval, batch integer, since timestamptz) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT maintain_renotify_since(now(), kept(overdue), batch, since) $$;

CREATE FUNCTION maintain_unserved(overdue interval, most integer, since timestamptz DEFAULT '-infinity') RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT maintain_unserved(now(), kept(overdue), most, since) $$;

CREATE FUNCTION maintain_history_drop(keep interval) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT maintain_history_drop(now(), kept(keep)) $$;

CREATE FUNCTION maintain_forget_keys(keep interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT maintain_forget_keys(now(), kept(keep), batch) $$;

CREATE FUNCTION maintain_forget_notices(keep interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT maintain_forget_notices(now(), kept(keep), batch) $$;

CREATE FUNCTION pace_forget() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT pace_forget(clock_timestamp()) $$;

CREATE FUNCTION history_drop_if_counted(history text, day date, expected bigint, keep interval) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT history_drop_if_counted(history, day, expected, now(), kept(keep))
$$;

CREATE FUNCTION orphans_release(bodies uuid[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT orphans_release(bodies, now()) $$;

CREATE FUNCTION orphans_hold(ids bigint[]) RETURNS SETOF bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT orphans_hold(ids, now()) $$;

REVOKE ALL ON FUNCTION kept(interval), history_create(integer), maintain_sweep(interval, interval, integer), maintain_finish(text, integer),
    maintain_hold_poison(integer, integer), maintain_renotify(interval, integer), maintain_sweep_since(interval, interval, integer, timestamptz),
    maintain_renotify_since(interval, integer, timestamptz), maintain_unserved(interval, integer, timestamptz), maintain_history_drop(interval),
    maintain_forget_keys(interval, integer), maintain_forget_notices(interval, integer), pace_forget(),
    history_drop_if_counted(text, date, bigint, interval), orphans_release(uuid[]), orphans_hold(bigint[]) FROM PUBLIC;

-- Whatever rights were given, with whichever migration: the functions that are given the time are in nobody's hand.
DO $$
DECLARE
    given regprocedure;
BEGIN
    IF to_regrole('pillarbox_queued') IS NOT NULL THEN
        GRANT EXECUTE ON FUNCTION history_create(integer), maintain_sweep(interval, interval, integer), maintain_finish(text, integer),
            maintain_hold_poison(integer, integer), maintain_renotify(interval, integer), maintain_sweep_since(interval, interval, integer, timestamptz),
    maintain_renotify_since(interval, integer, timestamptz), maintain_unserved(interval, integer, timestamptz), maintain_history_drop(interval),
            maintain_forget_keys(interval, integer), maintain_forget_notices(interval, integer), pace_forget() TO pillarbox_queued;
    END IF;
    IF to_regrole('pillarbox_maintainer') IS NOT NULL THEN
        GRANT EXECUTE ON FUNCTION history_create(integer), maintain_sweep(interval, interval, integer), maintain_finish(text, integer),
            maintain_hold_poison(integer, integer), maintain_renotify(interval, integer), maintain_sweep_since(interval, interval, integer, timestamptz),
    maintain_renotify_since(interval, integer, timestamptz), maintain_unserved(interval, integer, timestamptz), maintain_history_drop(interval),
            maintain_forget_keys(interval, integer), maintain_forget_notices(interval, integer), pace_forget(),
            history_drop_if_counted(text, date, bigint, interval), orphans_release(uuid[]), orphans_hold(bigint[]) TO pillarbox_maintainer;
    END IF;
    FOREACH given IN ARRAY ARRAY['history_create(timestamptz, integer)', 'maintain_sweep(timestamptz, interval, interval, integer)',
        'maintain_finish(timestamptz, text, integer)', 'maintain_hold_poison(timestamptz, integer, integer)',
        'maintain_renotify(timestamptz, interval, integer)',
        'maintain_sweep_since(timestamptz, interval, interval, integer, timestamptz)',
        'maintain_renotify_since(timestamptz, interval, integer, timestamptz)', 'maintain_unserved(timestamptz, interval, integer, timestamptz)',
        'maintain_overdue(timestamptz, interval, integer, timestamptz)', 'maintain_history_drop(timestamptz, interval)',
        'maintain_forget_keys(timestamptz, interval, integer)', 'maintain_forget_notices(timestamptz, interval, integer)',
        'pace_forget(timestamptz)', 'history_drop_if_counted(text, date, bigint, timestamptz, interval)',
        'orphans_release(uuid[], timestamptz)', 'orphans_hold(bigint[], timestamptz)']::regprocedure[] LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', given);
        IF to_regrole('pillarbox_maintainer') IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM pillarbox_maintainer', given);
        END IF;
    END LOOP;
    -- No worker of the version before knows these.
    IF to_regrole('pillarbox_queued') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION maintain_sweep_since(timestamptz, interval, interval, integer, timestamptz),
            maintain_renotify_since(timestamptz, interval, integer, timestamptz),
            maintain_unserved(timestamptz, interval, integer, timestamptz) FROM pillarbox_queued;
    END IF;
    -- Workers of the version before are given the rest until they are gone. They drop no day of history meanwhile, and say so
    -- (maintain.failed); this version's do, in the same round.
    IF to_regrole('pillarbox_queued') IS NOT NULL THEN
        REVOKE ALL ON FUNCTION maintain_history_drop(timestamptz, interval) FROM pillarbox_queued;
    END IF;
END $$;
