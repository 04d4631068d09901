-- Suspends, limits that workers share, and warm-ups: see "Pacing" in ../README.md.
SET LOCAL search_path = pillarbox;

-- Suspends: a selection of mail that must wait, why, who suspended it, until when.
CREATE TABLE suspends (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    selection jsonb       NOT NULL,                 -- lists of values by field, as `match` in queued.yaml; {}: all
    reason    text        NOT NULL CHECK (reason <> ''),
    who       text        NOT NULL DEFAULT acting_for(),
    made      timestamptz NOT NULL DEFAULT now(),
    expires   timestamptz,                          -- NULL: until it is removed
    -- Every worker reads these rows, and one that it could not read would stop all workers.
    CONSTRAINT suspends_selection CHECK (
        jsonb_typeof(selection) = 'object'
        AND selection - '{transport,destination,sender,tenant,jobid,site,source}'::text[] = '{}'
        AND NOT jsonb_path_exists(selection, 'strict $.* ? (@.type() != "array" || exists (@[*] ? (@.type() != "string")))')),
    CONSTRAINT suspends_times CHECK (
        made >= '1970-01-01 00:00:00+00' AND made < '9999-01-01 00:00:00+00'
        AND expires >= '1970-01-01 00:00:00+00' AND expires < '9999-01-01 00:00:00+00'),
    CONSTRAINT suspends_once UNIQUE (selection, who)
);

-- Workers read the table when they hear this, and at every poll. No partition id has a colon. Only where it cannot
-- refuse the suspend (notify_partition says why): every worker reads the table at its next poll.
CREATE FUNCTION suspends_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF pg_notification_queue_usage() < 0.5 THEN
        NOTIFY pillarbox, 'suspends:';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER suspends_changed AFTER INSERT OR UPDATE OR DELETE ON suspends
    FOR EACH STATEMENT EXECUTE FUNCTION suspends_changed();
CREATE TRIGGER suspends_operated BEFORE INSERT OR UPDATE OR DELETE ON suspends
    FOR EACH STATEMENT WHEN (coalesce(current_setting('pillarbox.acting', true), '') <> '') EXECUTE FUNCTION operators_only();

-- Whether one of these values matches; a value that begins with a dot is every domain below. It reads nothing.
CREATE FUNCTION suspend_fits(wanted jsonb, given text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pillarbox, pg_temp AS $$
    SELECT wanted IS NULL OR EXISTS (
        SELECT FROM jsonb_array_elements_text(wanted) AS w
         WHERE lowered(given) = lowered(w) OR (left(w, 1) = '.' AND right(lowered(given), length(w)) = lowered(w)))
$$;

-- One row for each limit that workers share: its token bucket as it was when a worker took from it last. A worker that
-- takes or gives back locks it first, so that this is the one place where a shared limit is decided.
CREATE TABLE pace_limits (
    key    text PRIMARY KEY,
    tokens double precision NOT NULL,
    filled timestamptz      NOT NULL,
    full_at timestamptz     NOT NULL                -- from then on forgetting the row changes nothing
);

-- How many slots of a limit each worker holds, until when, and since when it has been waiting for its first.
CREATE TABLE pace_shares (
    key     text        NOT NULL,
    worker  text        NOT NULL,
    slots   integer     NOT NULL CHECK (slots >= 0),
    expires timestamptz NOT NULL,
    waiting timestamptz,
    PRIMARY KEY (key, worker)
);

-- Takes a portion of a shared limit for a worker: up to `want` tokens and up to `more` slots beside the `keep` it says
-- it has. `give` tokens come back unused. Slots that a worker does not say it keeps are free at once: a lost answer is
-- thus repaired by the next call, and until then counts as taken. `seconds` is how long until there is a token again;
-- `starved` whether another worker waits for its first slot, or all of them hold more than there are: finished slots are
-- not kept then. Among those the one that has waited longest comes first.
CREATE FUNCTION pace_share(limit_key text, holder text, at timestamptz, rate double precision, burst integer,
                           give integer, want integer, most integer, keep integer, more integer, lease interval,
                           OUT tokens integer, OUT seconds double precision, OUT slots integer, OUT starved boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    known pace_limits;
    instant timestamptz;
    left_over double precision;
    others bigint;
    waiters bigint;
    ahead bigint;
    mine timestamptz;
BEGIN
    INSERT INTO pace_limits AS l (key, tokens, filled, full_at)
        VALUES (limit_key, coalesce(burst, 0), coalesce(at, clock_timestamp()), coalesce(at, clock_timestamp()))
        ON CONFLICT (key) DO UPDATE SET key = excluded.key  -- locks it
        RETURNING l.* INTO known;
    instant := coalesce(at, clock_timestamp());  -- not before the lock: time by this row goes back with the server's clock only
    tokens := 0; seconds := 0; slots := 0; starved := false;
    IF rate IS NOT NULL THEN
        left_over := least(burst, known.tokens + give + rate * greatest(0, extract(epoch FROM instant - known.filled)));
        tokens := greatest(0, least(want, floor(left_over + 1e-9)));
        left_over := left_over - tokens;
        seconds := greatest(0, (1 - left_over) / rate);
        UPDATE pace_limits l SET tokens = left_over, filled = instant,
                                 full_at = instant + make_interval(secs => (burst - left_over) / rate)
         WHERE l.key = limit_key;
    END IF;
    IF most IS NOT NULL THEN
        SELECT s.waiting INTO mine FROM pace_shares s WHERE s.key = limit_key AND s.worker = holder AND s.expires > instant;
        mine := least(coalesce(mine, instant), instant);
        SELECT coalesce(sum(s.slots), 0), count(*) FILTER (WHERE s.waiting IS NOT NULL AND s.slots = 0),
               count(*) FILTER (WHERE s.waiting IS NOT NULL AND s.slots = 0 AND (keep > 0 OR (s.waiting, s.worker) < (mine, holder)))
          INTO others, waiters, ahead
          FROM pace_shares s WHERE s.key = limit_key AND s.worker <> holder AND s.expires > instant
           AND s.expires <= instant + interval '10 minutes';  -- what ends later was given before the clock was put back
        slots := greatest(0, least(more, most - keep - others - ahead));
        starved := waiters > 0 OR keep + others > most;  -- more where the limit was lowered meanwhile
        IF keep + slots > 0 OR more > 0 THEN
            INSERT INTO pace_shares AS s (key, worker, slots, expires, waiting)
                VALUES (limit_key, holder, keep + pace_share.slots,
                        -- Who holds nothing is not waited for long when it stops asking.
                        instant + CASE WHEN keep + pace_share.slots > 0 THEN lease ELSE least(lease, interval '5 seconds') END,
                        CASE WHEN keep + pace_share.slots = 0 THEN mine END)
                ON CONFLICT (key, worker) DO UPDATE
                    SET slots = excluded.slots, expires = excluded.expires, waiting = excluded.waiting;
        ELSE
            DELETE FROM pace_shares s WHERE s.key = limit_key AND s.worker = holder;
        END IF;
    END IF;
END $$;

-- The same by the server's clock, which is a worker's only way: with one of its own a worker could take tokens of years to
-- come, or leave a limit that no other worker gets anything from. Slots lapse after 10 minutes at the latest.
CREATE FUNCTION pace_share(limit_key text, holder text, rate double precision, burst integer,
                           give integer, want integer, most integer, keep integer, more integer, lease interval,
                           OUT tokens integer, OUT seconds double precision, OUT slots integer, OUT starved boolean)
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT * FROM pace_share(limit_key, holder, NULL, rate, burst, give, want, most, keep, more, least(lease, interval '10 minutes'))
$$;

-- Forgets what no longer matters: suspends and shares that have ended, limits whose bucket is full again. How many
-- rows.
CREATE FUNCTION pace_forget(at timestamptz) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    instant timestamptz := coalesce(at, clock_timestamp());
    gone bigint;
BEGIN
    -- Workers lock many of each in one statement, so this waits for none of them.
    WITH ended AS MATERIALIZED (
        SELECT e.id FROM suspends e WHERE e.expires < instant FOR UPDATE SKIP LOCKED
    )
    DELETE FROM suspends s USING ended e WHERE s.id = e.id;
    WITH ended AS MATERIALIZED (
        SELECT e.key, e.worker FROM pace_shares e WHERE e.expires < instant - interval '1 minute' FOR UPDATE SKIP LOCKED
    )
    DELETE FROM pace_shares s USING ended e WHERE s.key = e.key AND s.worker = e.worker;
    WITH idle AS MATERIALIZED (
        SELECT l.key FROM pace_limits l
         WHERE l.full_at < instant AND l.filled < instant - interval '1 minute'
           AND NOT EXISTS (SELECT FROM pace_shares s WHERE s.key = l.key)
         FOR UPDATE SKIP LOCKED
    ), forgotten AS (
        DELETE FROM pace_limits l USING idle i WHERE l.key = i.key RETURNING 1
    )
    SELECT count(*) INTO gone FROM forgotten;
    RETURN gone;
END $$;

CREATE FUNCTION pace_forget() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$ SELECT pace_forget(clock_timestamp()) $$;

-- Warm-ups: how much of its allowance a source address has used on each of its first days, counted for all workers
-- together.
CREATE TABLE warmups (
    source  inet    NOT NULL,
    day     date    NOT NULL,     -- in UTC
    used    integer NOT NULL,     -- messages workers were granted; what a worker did not send of it is lost for the day
    granted integer NOT NULL,     -- to the last worker that asked
    PRIMARY KEY (source, day),
    CONSTRAINT warmups_used CHECK (used >= granted AND granted > 0)
);
