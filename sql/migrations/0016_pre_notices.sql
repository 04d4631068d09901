-- Notices: what senders are to be told of their recipients (RFC 3461, RFC 3464), as an outbox; and addresses that get no mail.
SET LOCAL search_path = pillarbox;

-- One row for each recipient and event that somebody is to be told of, written by the statement that records the event; gone
-- in the transaction that queues the notification. What a row says is copied, since the queue row may be gone by then.
CREATE TABLE notices (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ts                 timestamptz   NOT NULL DEFAULT now(),  -- when it happened
    due                timestamptz   NOT NULL DEFAULT now(),  -- not told before; later where a rate or a refusal holds it back
    kind               text          NOT NULL CHECK (kind IN ('failed', 'delayed', 'delivered', 'relayed', 'expanded')),
    messages__id       uuid          NOT NULL,
    queue__id          bigint        NOT NULL,
    senderlocalpart    envelope_text NOT NULL,                -- never of the null sender: no bounce of a bounce
    senderdomain       envelope_text NOT NULL,
    recipientlocalpart envelope_text NOT NULL,
    recipientdomain    envelope_text NOT NULL,
    metadata           jsonb,                                 -- the queue row's: `_dsn` has ret, envid and orcpt
    remote             text,                                  -- as attempts.remote
    reply_code         integer,                               -- as in attempts; NULL: there was no reply
    reply_enhanced     text,
    reply_text         text,
    arrived            timestamptz   NOT NULL,                -- queue.ts
    will_retry_until   timestamptz                            -- of delayed
);
CREATE INDEX notices_due ON notices (due, id);
CREATE INDEX notices_messages__id ON notices (messages__id, kind);

-- How many notifications each sender got in an hour; '' counts all of them.
CREATE TABLE notice_counts (
    hour    timestamptz NOT NULL,
    sender  text        NOT NULL,
    notices integer     NOT NULL,
    PRIMARY KEY (hour, sender)
);

-- Queues one notification and forgets what it tells of, in the caller's transaction: it is sent if, and only if, these rows
-- go. Rows that are gone already make it fail, so that nobody is told twice. `recipients` is the sender's address, its domain in
-- A-labels as enqueue takes it.
CREATE FUNCTION notice_send(at timestamptz, ids bigint[], recipients text[], content bytea, transport text, smtputf8 boolean) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    gone integer;
    told text[];
    message uuid;
BEGIN
    WITH deleted AS (
        DELETE FROM notices n WHERE n.id = ANY (ids) RETURNING n.senderlocalpart || '@' || n.senderdomain AS sender
    )
    SELECT count(*), array_agg(DISTINCT d.sender) INTO gone, told FROM deleted d;
    IF gone <> cardinality(ids) OR cardinality(told) <> 1 THEN
        RAISE EXCEPTION 'notices % are not those of one sender', ids USING ERRCODE = 'invalid_parameter_value';
    END IF;
    message := enqueue('', recipients, content, transportid => transport, smtputf8 => notice_send.smtputf8);
    -- It is ours, not of the login that this worker uses.
    UPDATE queue q SET serverid = 'bounce', saslusername = NULL WHERE q.messages__id = message;
    INSERT INTO notice_counts AS c (hour, sender, notices)
        SELECT date_trunc('hour', at, 'UTC'), s, 1 FROM unnest(ARRAY['', told[1]]) AS s
        ON CONFLICT (hour, sender) DO UPDATE SET notices = c.notices + 1;
    RETURN message;
END $$;

-- Queues the copy for the operator, in the transaction of the notification it is a copy of.
CREATE FUNCTION notice_copy(recipient text, content bytea, transport text, smtputf8 boolean) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    message uuid := enqueue('', ARRAY[recipient], content, transportid => transport, smtputf8 => notice_copy.smtputf8);
BEGIN
    UPDATE queue q SET serverid = 'bounce', saslusername = NULL WHERE q.messages__id = message;
    RETURN message;
END $$;

-- As before; and a body that a notice is still to return stays as long as the notice.
CREATE OR REPLACE FUNCTION maintain_sweep(at timestamptz, grace interval, keep interval, batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    ripe uuid[];
    locked uuid[];
    swept integer;
BEGIN
    -- The anti-join must see what was committed before the bodies were locked: an older snapshot would not.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'maintain_sweep needs READ COMMITTED' USING ERRCODE = 'invalid_transaction_state';
    END IF;
    SELECT array_agg(r.messages__id) INTO ripe
      FROM (SELECT messages__id FROM released WHERE ts < at - grace ORDER BY ts LIMIT batch FOR UPDATE SKIP LOCKED) AS r;
    -- Whoever gives one of these bodies a recipient at this moment has locked it: it is left alone.
    SELECT array_agg(m.id) INTO locked
      FROM (SELECT id FROM messages WHERE id = ANY (ripe) ORDER BY id FOR UPDATE SKIP LOCKED) AS m;
    WITH body AS MATERIALIZED (
        SELECT b.id, EXISTS (SELECT FROM queue q WHERE q.messages__id = b.id) AS needed,
               greatest(coalesce((SELECT max(a.finished) FROM archive a WHERE a.messages__id = b.id AND archive_is_dead(a.result)) + keep,
                                 '-infinity'),
                        CASE WHEN EXISTS (SELECT FROM notices n WHERE n.messages__id = b.id) THEN at + interval '1 minute' END) AS until
          FROM unnest(locked) AS b(id)
    ), kept AS (
        UPDATE released r SET ts = b.until FROM body b WHERE r.messages__id = b.id AND NOT b.needed AND b.until > at - grace
        RETURNING 1
    ), collected AS (
        DELETE FROM messages m USING body b WHERE m.id = b.id AND NOT b.needed AND b.until <= at - grace
    ), dropped AS (
        -- Also notes of bodies that a recipient needs, whose count was wrong, and of bodies somebody else took.
        DELETE FROM released r
         WHERE r.messages__id = ANY (ripe)
           AND (r.messages__id IN (SELECT b.id FROM body b WHERE b.needed OR b.until <= at - grace)
                OR NOT EXISTS (SELECT FROM messages m WHERE m.id = r.messages__id))
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM kept) + (SELECT count(*) FROM dropped) INTO swept;
    RETURN swept;
END $$;

-- As before; and the sender of what is bounced is told, unless NOTIFY says no.
CREATE OR REPLACE FUNCTION maintain_finish(at timestamptz, who text, batch integer) RETURNS TABLE (result text, recipients bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT q.id FROM queue q
         WHERE q.status IN ('DELETE', 'BOUNCE') AND (q.lease_until IS NULL OR q.lease_until <= at)
         ORDER BY q.id LIMIT batch FOR UPDATE SKIP LOCKED
    ), finished AS (
        DELETE FROM queue q USING asked WHERE q.status IN ('DELETE', 'BOUNCE') AND q.id = asked.id RETURNING q.*
    ), told AS (
        INSERT INTO notices (ts, due, kind, messages__id, queue__id, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain,
                             metadata, reply_enhanced, reply_text, arrived)
        SELECT at, at, 'failed', f.messages__id, f.id, f.senderlocalpart, f.senderdomain, f.recipientlocalpart, f.recipientdomain,
               f.metadata, '5.7.1', coalesce('returned by the operator; before that: ' || f.last_error, 'returned by the operator'), f.ts
          FROM finished f
         WHERE f.status = 'BOUNCE' AND f.senderdomain IS NOT NULL
           AND coalesce(f.metadata->'_dsn'->'notify', '["FAILURE"]') ? 'FAILURE'
    ), archived AS (
        INSERT INTO archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                             senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                             retry_count, last_error, worker)
        SELECT f.id, f.messages__id, f.actionid, at,
               CASE WHEN f.metadata->>'_quarantineid' = 'poison' THEN 'lock_expired' WHEN f.status = 'DELETE' THEN 'deleted' ELSE 'bounced' END,
               f.ts, f.senderip, f.serverid, f.saslusername, f.senderlocalpart, f.senderdomain, f.recipientlocalpart, f.recipientdomain,
               f.size, f.metadata, f.transportid, f.jobid, f.priority, f.retry_count, f.last_error, who
          FROM finished f
        RETURNING archive.result
    )
    SELECT archived.result, count(*) FROM archived GROUP BY archived.result;
END $$;

-- Addresses and domains that get no mail. A soft failure is noted, and counts only once there were enough of them.
CREATE TABLE suppressions (
    target   text        PRIMARY KEY CHECK (target = lower(target) AND target <> '' AND target !~ '[\x01-\x20\x7f]'),
    reason   text        NOT NULL,
    source   text        NOT NULL CHECK (source IN ('bounce', 'arf', 'operator')),
    since    timestamptz NOT NULL DEFAULT now(),
    expires  timestamptz,                              -- NULL: never
    evidence uuid,                                     -- the last report that spoke for it
    count    integer     NOT NULL DEFAULT 1 CHECK (count > 0),  -- of reports
    active   boolean     NOT NULL DEFAULT true         -- false: noted, and suppresses nothing yet
);
CREATE INDEX suppressions_expires ON suppressions (expires);

-- Whether we have sent, or are sending, this message to this address: what a report about it must agree with.
CREATE FUNCTION report_known(message uuid, localpart text, domain text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT EXISTS (SELECT FROM archive a WHERE a.messages__id = message
                      AND lower(a.recipientlocalpart) = lower(localpart) AND lower(a.recipientdomain) = lower(domain))
        OR EXISTS (SELECT FROM queue q WHERE q.messages__id = message
                      AND lower(q.recipientlocalpart) = lower(localpart) AND lower(q.recipientdomain) = lower(domain))
$$;

-- The one recipient of a message that had no other: whom a report means that leaves the address out.
CREATE FUNCTION report_only_recipient(message uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT CASE WHEN count(*) = 1 THEN min(address) END
      FROM (SELECT a.recipientlocalpart || '@' || a.recipientdomain AS address FROM archive a WHERE a.messages__id = message
            UNION SELECT q.recipientlocalpart || '@' || q.recipientdomain FROM queue q WHERE q.messages__id = message) AS recipients
$$;

-- Forgets counts of hours past, suppressions past their end and notices nobody could send for `keep`; at most `batch` of each.
CREATE FUNCTION maintain_forget_notices(at timestamptz, keep interval, batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    forgotten integer;
    more integer;
BEGIN
    DELETE FROM notice_counts c WHERE (c.hour, c.sender) IN (
        SELECT o.hour, o.sender FROM notice_counts o WHERE o.hour < at - interval '1 day' ORDER BY o.hour LIMIT batch FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    DELETE FROM suppressions s WHERE s.target IN (
        SELECT o.target FROM suppressions o WHERE o.expires < at ORDER BY o.expires LIMIT batch FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS more = ROW_COUNT;
    forgotten := greatest(forgotten, more);
    DELETE FROM notices n WHERE n.id IN (
        SELECT o.id FROM notices o WHERE o.ts < at - keep ORDER BY o.id LIMIT batch FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN greatest(forgotten, more);
END $$;

-- Least privilege, as in roles.
REVOKE ALL ON FUNCTION notice_send(timestamptz, bigint[], text[], bytea, text, boolean), notice_copy(text, bytea, text, boolean), report_known(uuid, text, text),
    report_only_recipient(uuid), maintain_forget_notices(timestamptz, interval, integer) FROM PUBLIC;
DO $$
BEGIN
    GRANT INSERT, SELECT ON notices TO pillarbox_queued;
    GRANT UPDATE (due) ON notices TO pillarbox_queued;
    GRANT DELETE ON notices TO pillarbox_queued;
    GRANT SELECT ON notice_counts TO pillarbox_queued;
    GRANT EXECUTE ON FUNCTION notice_send, notice_copy, report_known, report_only_recipient TO pillarbox_queued;
    GRANT SELECT, INSERT, UPDATE ON suppressions TO pillarbox_queued;
    GRANT SELECT ON suppressions TO pillarbox_smtpd;
    GRANT SELECT ON notices, suppressions TO pillarbox_maintainer;
    GRANT INSERT, UPDATE, DELETE ON suppressions TO pillarbox_maintainer;
    GRANT EXECUTE ON FUNCTION maintain_forget_notices TO pillarbox_queued, pillarbox_maintainer;
EXCEPTION WHEN undefined_object OR insufficient_privilege THEN
    RAISE NOTICE 'roles are left out, as when they were made';
END $$;
