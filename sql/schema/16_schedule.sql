-- Recurring mail: the message, how often, and when next. Workers compute the times (shared/cron.py), PostgreSQL sends.
--
-- A worker can send only a schedule's own message, and cannot read it.
SET LOCAL search_path = pillarbox;

CREATE TABLE schedules (
    id           text PRIMARY KEY,
    cron         text        NOT NULL,                 -- five fields, crontab(5)
    timezone     text        NOT NULL DEFAULT 'UTC',   -- in which the fields are meant
    sender       text        NOT NULL,                 -- '' is the null sender
    recipients   text[]      NOT NULL,
    content      bytea       NOT NULL,                 -- lines that end with CR LF; without Date and Message-ID
    metadata     jsonb       NOT NULL DEFAULT '{}',
    transportid  text        NOT NULL DEFAULT 'default',
    priority     smallint    NOT NULL DEFAULT 0,
    smtputf8     boolean     NOT NULL DEFAULT false,
    next_at      timestamptz NOT NULL,                 -- the occurrence that is sent next
    last_at      timestamptz,                          -- when one was sent last
    last_message uuid,                                 -- and as which message
    enabled      boolean     NOT NULL DEFAULT true,
    made         timestamptz NOT NULL DEFAULT now(),
    error        text,                                 -- why it was disabled
    -- The id becomes part of a Message-ID, of a key and of log lines.
    CONSTRAINT schedules_id CHECK (id ~ '^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$'),
    -- As queue_times: one that Python cannot read would stop all schedules.
    CONSTRAINT schedules_times CHECK (next_at >= '1970-01-01 00:00:00+00' AND next_at < '9999-01-01 00:00:00+00')
);
CREATE INDEX schedules_next ON schedules (next_at) WHERE enabled;
CREATE TRIGGER schedules_operated BEFORE INSERT OR UPDATE OR DELETE ON schedules
    FOR EACH STATEMENT WHEN (coalesce(current_setting('pillarbox.acting', true), '') <> '') EXECUTE FUNCTION operators_only();

-- Queues one occurrence and advances next_at to `following`, in the caller's transaction; NULL when the schedule is not
-- due with this occurrence any more, or another session has it. Every occurrence gets a Date and a Message-ID of its
-- own, since receivers silently drop a message whose Message-ID they have seen; the same occurrence always gets the
-- same. One that was queued before, and is due again because next_at was set back, is not queued twice.
CREATE FUNCTION schedule_send(schedule text, occurrence timestamptz, following timestamptz, at timestamptz) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    s schedules;
    stamp text := to_char(occurrence AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS"Z"');
    heading text;
    once text;
    message uuid;
BEGIN
    IF following <= at THEN
        RAISE EXCEPTION 'the occurrence after % must be in the future, not %', occurrence, following
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO s FROM schedules WHERE id = schedule AND enabled AND next_at = occurrence AND next_at <= at FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    once := format('schedule:%s:%s', s.id, stamp);
    heading := format(E'Date: %s +0000\r\nMessage-ID: <%s.%s.%s@%s>\r\n',
                      to_char(at AT TIME ZONE 'UTC', 'Dy, DD Mon YYYY HH24:MI:SS'),
                      s.id, stamp, left(md5(extract(epoch FROM s.made)::text), 8),
                      coalesce(nullif(split_part(s.sender, '@', -1), ''), 'pillarbox.invalid'));
    -- Its Date would be another one now, so enqueue would refuse the key.
    SELECT i.messages__id INTO message FROM idempotency i WHERE i.application = acting_for() AND i.key = once;
    IF NOT FOUND THEN
        message := enqueue(s.sender, s.recipients, convert_to(heading, 'UTF8') || s.content, idempotency_key => once, priority => s.priority,
                           metadata => s.metadata, transportid => s.transportid, jobid => s.id, smtputf8 => s.smtputf8);
    END IF;
    UPDATE schedules SET next_at = following, last_at = at, last_message = message, error = NULL WHERE id = s.id;
    RETURN message;
END $$;

-- The same by the server's clock, which is a worker's only way: with a clock of its own it could send before the time. NULL
-- also where `following` is past by now: a worker that computes it again finds the schedule still due.
CREATE FUNCTION schedule_send(schedule text, occurrence timestamptz, following timestamptz) RETURNS uuid
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT CASE WHEN following > now() THEN schedule_send(schedule, occurrence, following, now()) END
$$;

-- Disables a schedule that cannot be sent, with the reason; whether it was still due with this occurrence.
CREATE FUNCTION schedule_disable(schedule text, occurrence timestamptz, reason text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    UPDATE schedules SET enabled = false, error = reason WHERE id = schedule AND enabled AND next_at = occurrence;
    RETURN FOUND;
END $$;
