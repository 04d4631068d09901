-- The parts that all other files use: the schema, its list of migrations, settings of the configuration that SQL needs,
-- and functions that every other file may call.
--
-- Every function names its search_path, so that nothing a caller sets can redirect it.
CREATE SCHEMA IF NOT EXISTS pillarbox;
SET LOCAL search_path = pillarbox;

-- Which migrations this database has; shared/postgres/migrate.py adds a row in each migration's own transaction.
CREATE TABLE migrations (
    number  integer PRIMARY KEY,
    name    text        NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);

-- Settings of the configuration that SQL needs; `pillarbox migrate` writes them.
CREATE TABLE settings (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    partitions integer NOT NULL DEFAULT 6 CHECK (partitions BETWEEN 1 AND 1024), -- environment.database.partitions.count
    reviewers  jsonb   NOT NULL DEFAULT '{}',          -- quarantines[].reviewers by id, of those that name any
    keepsubject boolean NOT NULL DEFAULT true          -- spool.keepsubject
);
INSERT INTO settings DEFAULT VALUES;

-- The partition id of a domain: the same function as shared/mail/partition.py, a test compares them. Only A-labels:
-- PostgreSQL cannot turn `größe` into `xn--gre-6ka8i`, and the U-label's own hash would be another partition than smtpd
-- chooses.
CREATE FUNCTION partition_id(domain text, count integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF domain ~ E'[^\\x01-\\x7f]' THEN
        RAISE EXCEPTION 'not an ASCII domain: %', to_json(left(domain, 100))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'write international domains as A-labels (xn--…, RFC 5890)';
    END IF;
    RETURN (('x' || encode(substr(sha256(convert_to(lower(domain COLLATE "C"), 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint
            % count + 1)::text;
END $$;

-- A text in lower case, with ASCII alike in every database: in a Turkish one lower('I') is ı. Other letters are as the
-- database's locale has them.
CREATE FUNCTION lowered(words text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN lower(lower(words COLLATE "C") COLLATE "default");

-- The channel on which workers of this partition listen: one of 64, so that an id of any length has one, and a worker
-- that may get any id can listen to all. The same function as shared/mail/partition.py, a test compares them. NULL is
-- mail without an id.
CREATE FUNCTION partition_channel(partid text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pillarbox, pg_temp AS $$
    SELECT 'pillarbox_' || (('x' || encode(substr(sha256(convert_to(coalesce(partid, ''), 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint % 64)
$$;

-- Wakes the workers of a partition at COMMIT; returns whether it will. It is a hint, so it is left out where it could do
-- harm: a login that may connect to any database of the cluster can fill the queue of notifications by listening in a
-- transaction that does not end, and a COMMIT that notifies fails when the queue is full. So nothing is sent once it is
-- half full, and workers find the mail at their next poll. Commits that notify wait for each other in the whole cluster,
-- each for as long as the one before writes to its disk: an application with many commits leaves it out by
-- SET pillarbox.wake = off. An id that is not plain is sent as `any:`, for which all workers on that channel look.
CREATE FUNCTION notify_partition(partid text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF lower(coalesce(current_setting('pillarbox.wake', true), '') COLLATE "C") IN ('off', 'false', 'no', '0') OR pg_notification_queue_usage() >= 0.5 THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(partition_channel(partid), CASE WHEN octet_length(partid) > 64 THEN 'any:' ELSE coalesce(partid, '') END);
    RETURN true;
END $$;

-- A span of time that is kept. A negative one is another way to write a clock that is fast.
CREATE FUNCTION kept(span interval) RETURNS interval LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    -- Spans compare as if every month had 30 days: one of -3600 months and 108000 days is 0 there, and years ahead on the calendar.
    IF span < interval '0' OR now() - span > now() THEN
        RAISE EXCEPTION 'keeping for % is not possible', span USING ERRCODE = 'invalid_parameter_value', HINT = 'allowed: 0 and more';
    END IF;
    RETURN span;
END $$;

-- True, or an error where this transaction acts for a principal that is no operator. STABLE, so that `WHERE operator_checked()` is
-- asked once, before anything else of its statement is done.
CREATE FUNCTION operator_checked() RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT coalesce(acting_has('{operator,admin}'), true) THEN
        RAISE EXCEPTION '% may not maintain the queue: only operators may', to_json(acting_for()) USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN true;
END $$;
