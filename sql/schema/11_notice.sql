-- Notices: notifications to senders about their recipients (RFC 3461, RFC 3464), as an outbox; and addresses that get no
-- mail.
SET LOCAL search_path = pillarbox;

-- One row for each recipient and event that needs a notification, written by the statement that records the event and
-- deleted by the transaction that queues the notification. Its values are copied, since the queue row may be gone by then.
CREATE TABLE notices (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ts                 timestamptz   NOT NULL DEFAULT now(),  -- when it happened
    due                timestamptz   NOT NULL DEFAULT now(),  -- not sent before; a rate or a refusal puts it off
    kind               text          NOT NULL CHECK (kind IN ('failed', 'delayed', 'delivered', 'relayed')),
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
    will_retry_until   timestamptz,                           -- of delayed
    refused            timestamptz                            -- since when it could not be queued, if so
);
CREATE INDEX notices_due ON notices (due, id);
CREATE INDEX notices_sender ON notices (senderdomain, senderlocalpart, due, id);  -- those of one wait for the next hour together
CREATE INDEX notices_messages__id ON notices (messages__id, kind);
CREATE INDEX notices_refused ON notices (refused) WHERE refused IS NOT NULL;

-- How many notifications each sender got in an hour; '' counts all of them.
CREATE TABLE notice_counts (
    hour    timestamptz NOT NULL,
    sender  text        NOT NULL,
    notices integer     NOT NULL,
    PRIMARY KEY (hour, sender)
);

-- Queues one notification and deletes its notices, in the caller's transaction: it is sent if, and only if, these rows
-- go. Rows that are gone already make it fail, so that no sender is notified twice. `recipients` is the sender's address,
-- its domain in A-labels as enqueue takes it. A notification of mail that asked for REQUIRETLS asks for it too, and so
-- does its copy (RFC 8689 section 5).
CREATE FUNCTION notice_send(at timestamptz, ids bigint[], recipients text[], content bytea, transport text,
                            smtputf8 boolean) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    gone integer;
    senders text[];
    protected boolean;
    message uuid;
BEGIN
    WITH deleted AS (
        DELETE FROM notices n WHERE n.id = ANY (ids)
        RETURNING n.senderlocalpart || '@' || n.senderdomain AS sender, n.metadata @> '{"_requiretls": true}' AS requiretls
    )
    SELECT count(*), array_agg(DISTINCT d.sender), coalesce(bool_or(d.requiretls), false) INTO gone, senders, protected FROM deleted d;
    IF gone <> cardinality(ids) OR cardinality(senders) <> 1 THEN
        RAISE EXCEPTION 'notices % are not those of one sender', ids USING ERRCODE = 'invalid_parameter_value';
    END IF;
    message := enqueue('', recipients, content, transportid => transport, smtputf8 => notice_send.smtputf8);
    -- It is ours, not of the login that this worker uses.
    UPDATE queue q
       SET serverid = 'bounce', saslusername = NULL,
           metadata = CASE WHEN protected THEN q.metadata || '{"_requiretls": true}' ELSE q.metadata END
     WHERE q.messages__id = message;
    INSERT INTO notice_counts AS c (hour, sender, notices)
        SELECT date_trunc('hour', at, 'UTC'), s, 1 FROM unnest(ARRAY['', senders[1]]) AS s
        ON CONFLICT (hour, sender) DO UPDATE SET notices = c.notices + 1;
    RETURN message;
END $$;

-- Queues the copy for the operator, in the transaction of the notification it is a copy of.
CREATE FUNCTION notice_copy(recipient text, content bytea, transport text, smtputf8 boolean,
                            requiretls boolean DEFAULT false) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    message uuid := enqueue('', ARRAY[recipient], content, transportid => transport, smtputf8 => notice_copy.smtputf8);
BEGIN
    UPDATE queue q
       SET serverid = 'bounce', saslusername = NULL,
           metadata = CASE WHEN requiretls THEN q.metadata || '{"_requiretls": true}' ELSE q.metadata END
     WHERE q.messages__id = message;
    RETURN message;
END $$;

-- Addresses and domains that get no mail. A soft failure is noted, and counts only once there were enough of them.
CREATE TABLE suppressions (
    target   text        PRIMARY KEY CHECK (target = lowered(target) AND target <> '' AND target !~ '[\x01-\x20\x7f]'),
    reason   text        NOT NULL,
    source   text        NOT NULL CHECK (source IN ('bounce', 'arf', 'operator')),
    since    timestamptz NOT NULL DEFAULT now(),
    expires  timestamptz,                              -- NULL: never
    evidence uuid,                                     -- the last report that spoke for it
    count    integer     NOT NULL DEFAULT 1 CHECK (count > 0),  -- of reports
    active   boolean     NOT NULL DEFAULT true,        -- false: noted, and suppresses nothing yet
    erased   boolean     NOT NULL DEFAULT false        -- `target` is address_hash of an address that was erased
);
CREATE INDEX suppressions_expires ON suppressions (expires);
CREATE INDEX suppressions_erased ON suppressions (target) WHERE erased;  -- whether there are any
CREATE TRIGGER suppressions_operated BEFORE INSERT OR UPDATE OR DELETE ON suppressions
    FOR EACH STATEMENT WHEN (coalesce(current_setting('pillarbox.acting', true), '') <> '') EXECUTE FUNCTION operators_only();

-- To which of these addresses, by their places from 1, we have sent, or are sending, one of these messages: what a report about
-- them must agree with.
CREATE FUNCTION report_known(messages uuid[], localparts text[], domains text[]) RETURNS integer[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    sent integer[];
BEGIN
    -- All at once: of strangers' reports each may name hundreds. The recipients of a message are found by its index first.
    WITH asked AS (
        SELECT a.n::integer AS n, lowered(a.l) AS l, lowered(a.d) AS d FROM unnest(localparts, domains) WITH ORDINALITY AS a(l, d, n)
    ), known AS MATERIALIZED (
        SELECT lowered(a.recipientlocalpart) AS l, lowered(a.recipientdomain) AS d FROM archive a WHERE a.messages__id = ANY (messages)
    )
    SELECT coalesce(array_agg(a.n), '{}') INTO sent FROM asked a WHERE (a.l, a.d) IN (SELECT k.l, k.d FROM known k);
    IF cardinality(sent) < cardinality(localparts) THEN
        PERFORM FROM locks WHERE name = 'reports' FOR UPDATE;  -- what follows locks every leaf
        WITH asked AS (
            SELECT a.n::integer AS n, lowered(a.l) AS l, lowered(a.d) AS d FROM unnest(localparts, domains) WITH ORDINALITY AS a(l, d, n)
        ), known AS MATERIALIZED (
            SELECT lowered(q.recipientlocalpart) AS l, lowered(q.recipientdomain) AS d FROM queue q WHERE q.messages__id = ANY (messages)
        )
        SELECT sent || coalesce(array_agg(a.n), '{}') INTO sent FROM asked a WHERE (a.l, a.d) IN (SELECT k.l, k.d FROM known k);
    END IF;
    RETURN sent;
END $$;

-- The one recipient of a message that had no other: the one that a report without an address means.
CREATE FUNCTION report_only_recipient(message uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM FROM locks WHERE name = 'reports' FOR UPDATE;  -- what follows locks every leaf
    RETURN (
        SELECT CASE WHEN count(*) = 1 THEN min(address) END
          FROM (SELECT a.recipientlocalpart || '@' || a.recipientdomain AS address FROM archive a WHERE a.messages__id = message
                UNION SELECT q.recipientlocalpart || '@' || q.recipientdomain FROM queue q WHERE q.messages__id = message) AS recipients);
END $$;

-- Forgets counts of hours past, suppressions past their end, and notices that were refused for `keep`, milestones, alarms and
-- minutes of streams as old; at most `batch` of each. A notice that a rate holds back is kept until it is sent, however long that
-- takes; only what PostgreSQL itself refuses is forgotten.
CREATE FUNCTION maintain_forget_notices(at timestamptz, keep interval, batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    forgotten integer;
    more integer;
BEGIN
    -- Arrays, because a join could read the whole table for each batch.
    DELETE FROM notice_counts c WHERE c.ctid = ANY (ARRAY(
        SELECT o.ctid FROM notice_counts o WHERE o.hour < at - interval '1 day' ORDER BY o.hour LIMIT batch FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    DELETE FROM suppressions s WHERE s.target = ANY (ARRAY(
        SELECT o.target FROM suppressions o WHERE o.expires < at ORDER BY o.expires LIMIT batch FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS more = ROW_COUNT;
    forgotten := greatest(forgotten, more);
    DELETE FROM notices n WHERE n.id = ANY (ARRAY(
        SELECT o.id FROM notices o WHERE o.refused < at - keep ORDER BY o.refused LIMIT batch FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS more = ROW_COUNT;
    forgotten := greatest(forgotten, more);
    DELETE FROM milestones m WHERE m.ctid = ANY (ARRAY(
        SELECT o.ctid FROM milestones o WHERE o.ts < at - keep ORDER BY o.ts LIMIT batch FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS more = ROW_COUNT;
    forgotten := greatest(forgotten, more);
    DELETE FROM report_alarms a WHERE a.id = ANY (ARRAY(
        SELECT o.id FROM report_alarms o WHERE o.made < maintain_forget_notices.at - keep ORDER BY o.made LIMIT batch FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS more = ROW_COUNT;
    forgotten := greatest(forgotten, more);
    DELETE FROM report_minutes m WHERE m.ctid = ANY (ARRAY(
        SELECT o.ctid FROM report_minutes o WHERE o.minute < maintain_forget_notices.at - keep ORDER BY o.minute LIMIT batch FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS more = ROW_COUNT;
    RETURN greatest(forgotten, more);
END $$;

CREATE FUNCTION maintain_forget_notices(keep interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT maintain_forget_notices(now(), kept(keep), batch) WHERE operator_checked() $$;
