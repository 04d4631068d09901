-- NOTIFY without harm: a channel for each partition, and nothing that a full queue of notifications could refuse.
SET LOCAL search_path = pillarbox;

-- The channel on which workers of this partition listen: one of 64, so that an id of any length has one, and a worker that may
-- get any id can listen to all. The same function as shared/mail/partition.py, a test compares them. NULL is mail without an id.
CREATE FUNCTION partition_channel(partid text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pillarbox, pg_temp AS $$
    SELECT 'pillarbox_' || (('x' || encode(substr(sha256(convert_to(coalesce(partid, ''), 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint % 64)
$$;

-- Wakes the workers of a partition at COMMIT; whether it will. It is a hint, so it is left out where it could do harm: whoever may
-- connect to any database of the cluster can fill the queue of notifications by listening in a transaction that does not end, and
-- a COMMIT that notifies fails when that is full. So nothing is sent from half on, and workers find the mail at their next poll.
-- Commits that notify wait for each other in the whole cluster, each for as long as the one before writes to its disk: an
-- application with many commits leaves it out by SET pillarbox.wake = off. What is no plain id travels as `any:`, for which
-- everybody on that channel looks.
CREATE FUNCTION notify_partition(partid text) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF lower(coalesce(current_setting('pillarbox.wake', true), '')) IN ('off', 'false', 'no', '0') OR pg_notification_queue_usage() >= 0.5 THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(partition_channel(partid), CASE WHEN octet_length(partid) > 64 THEN 'any:' ELSE coalesce(partid, '') END);
    RETURN true;
END $$;

-- What notified the one channel of all partitions before: enqueue, mail, own_mail, requeueing, redirecting, renotifying. They stay
-- as they are but for this call.
DO $$
DECLARE
    changed text;
BEGIN
    FOR changed IN
        SELECT replace(pg_get_functiondef(p.oid), 'pg_notify(''pillarbox'', ', 'notify_partition(')
          FROM pg_proc p
         WHERE p.pronamespace = 'pillarbox'::regnamespace AND p.prosrc LIKE '%pg\_notify(''pillarbox'', %'
    LOOP
        EXECUTE changed;
    END LOOP;
END $$;

-- As before, and only where it cannot refuse the suspend: every worker reads the table at its next poll.
CREATE OR REPLACE FUNCTION suspends_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF pg_notification_queue_usage() < 0.5 THEN
        NOTIFY pillarbox, 'suspends:';
    END IF;
    RETURN NULL;
END $$;

-- As before, but that the transaction that records results announces nothing: its worker does, after COMMIT (queued/result.py).
-- What maintenance finishes as lock_expired is announced here, for pg_cron has nobody else who could.
CREATE OR REPLACE FUNCTION archive_died() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    dead integer;
    told text;
BEGIN
    SELECT count(*), left(string_agg(format('%s %s@%s %s', id, recipientlocalpart, recipientdomain, result), ', '), 1000)
      INTO dead, told FROM finished WHERE archive_is_dead(result);
    IF dead > 0 THEN
        PERFORM pg_notify('dead_message', id::text) FROM finished WHERE result = 'lock_expired' AND pg_notification_queue_usage() < 0.5;
        RAISE WARNING 'pillarbox: % dead: %', dead, told;
    END IF;
    RETURN NULL;
END $$;

GRANT EXECUTE ON FUNCTION partition_channel, notify_partition TO PUBLIC;  -- they read nothing, and anybody may notify
