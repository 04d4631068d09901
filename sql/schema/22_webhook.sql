-- Webhooks: HTTP endpoints that get events, how far each has come, and the history that neither attempts nor archive has.
--
-- Events are not stored: they are read from `attempts`, `archive`, `milestones` and `report_alarms` when an endpoint gets them. See
-- ../README.md, "Webhooks".
SET LOCAL search_path = pillarbox;

-- What happened to a recipient besides its tries and its end. Written by triggers, and by workers that read a report. Nothing
-- updates it; maintenance deletes what is older than keep.history. An arrival is noted only while an endpoint asks for it.
CREATE TABLE milestones (
    xact         bigint      NOT NULL DEFAULT pg_current_xact_id()::text::bigint,  -- as in attempts
    ts           timestamptz NOT NULL DEFAULT now(),
    kind         text        NOT NULL CHECK (kind IN ('accepted', 'held', 'released', 'bounced', 'complained')),
    queue__id    bigint      NOT NULL,
    messages__id uuid        NOT NULL,
    detail       jsonb                       -- who, quarantine, reason; of a report the recipient's archive row
);
CREATE INDEX milestones_xact ON milestones (xact);
CREATE INDEX milestones_ts ON milestones (ts);

CREATE TABLE webhooks (
    name      text PRIMARY KEY,
    url       text        NOT NULL,
    events    text[]      NOT NULL,
    condition text        NOT NULL DEFAULT '',    -- of docs/reference/condition.md; '' is every event
    secrets   text[]      NOT NULL,               -- whsec_…, file:PATH or env:NAME; each signs
    private   boolean     NOT NULL DEFAULT false, -- whether addresses that only our own networks reach are allowed
    batch     integer     NOT NULL DEFAULT 1,     -- the most events in one request; 1 sends each by itself
    origin    text        NOT NULL DEFAULT 'command',
    state     text        NOT NULL DEFAULT 'enabled',
    reason    text,                               -- why it is not enabled
    who       text        NOT NULL DEFAULT acting_for(),
    made      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT webhooks_name CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    CONSTRAINT webhooks_url CHECK (url ~ '^https?://' AND url !~ '[\x01-\x20\x7f]'),
    CONSTRAINT webhooks_events CHECK (events <> '{}' AND events <@ ARRAY[
        'accepted', 'delivered', 'deferred', 'failed', 'bounced', 'expired', 'held', 'released', 'suppressed', 'complained', 'deleted',
        'report.alarm']),
    CONSTRAINT webhooks_secrets CHECK (secrets <> '{}' AND array_position(secrets, NULL) IS NULL),
    CONSTRAINT webhooks_batch CHECK (batch BETWEEN 1 AND 1000),
    CONSTRAINT webhooks_origin CHECK (origin IN ('command', 'queued.yaml')),
    CONSTRAINT webhooks_state CHECK (state IN ('enabled', 'paused', 'disabled'))
);
CREATE TRIGGER webhooks_operated BEFORE INSERT OR UPDATE OR DELETE ON webhooks
    FOR EACH STATEMENT WHEN (coalesce(current_setting('pillarbox.acting', true), '') <> '') EXECUTE FUNCTION operators_only();

SELECT settings_keep('webhooks', 'name');

-- How far each endpoint has come: it has every event of the transactions that `snapshot` sees, and no other. `xact` is the
-- transaction that wrote the row; where the row's xmin is another, a dump was restored, and the numbers mean nothing here.
CREATE TABLE webhook_cursors (
    webhook   text        PRIMARY KEY REFERENCES webhooks ON DELETE CASCADE,
    xact      bigint      NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    snapshot  pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
    at        timestamptz NOT NULL DEFAULT now(),      -- when `snapshot` was taken
    again     timestamptz,                             -- events from here on are sent once more, by their time …
    until     timestamptz,                             -- … up to here, before what is new
    goal      jsonb,                                   -- the position that it is on the way to, and how far it has come
    tries     integer     NOT NULL DEFAULT 0,          -- of the request that fails, in a row
    failing   timestamptz,                             -- since when
    due       timestamptz,                             -- when it is tried again
    error     text,                                    -- why it failed
    sent      bigint      NOT NULL DEFAULT 0,          -- events that the endpoint has taken
    last_sent timestamptz,
    CONSTRAINT webhook_cursors_again CHECK ((again IS NULL) = (until IS NULL))
) WITH (fillfactor = 50);
CREATE TRIGGER webhook_cursors_operated BEFORE INSERT OR UPDATE OR DELETE ON webhook_cursors
    FOR EACH STATEMENT WHEN (coalesce(current_setting('pillarbox.acting', true), '') <> '') EXECUTE FUNCTION operators_only();

-- A new endpoint gets what happens from now on.
CREATE FUNCTION webhook_began() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    INSERT INTO webhook_cursors (webhook) VALUES (NEW.name);
    RETURN NULL;
END $$;
CREATE TRIGGER webhook_began AFTER INSERT ON webhooks FOR EACH ROW EXECUTE FUNCTION webhook_began();

-- Notes that a recipient was put on hold, or arrived so. The leaf's own trigger, because a move between partitions fires no
-- AFTER UPDATE trigger, but does fire this one.
CREATE FUNCTION milestone_held() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    INSERT INTO milestones (kind, queue__id, messages__id, detail)
    VALUES ('held', NEW.id, NEW.messages__id, jsonb_strip_nulls(jsonb_build_object(
        'quarantine', NEW.metadata->>'_quarantineid', 'reason', NEW.metadata->>'_holdreason', 'who', acting_for())));
    RETURN NULL;
END $$;
CREATE TRIGGER milestone_held AFTER INSERT ON queue_hold FOR EACH ROW EXECUTE FUNCTION milestone_held();

-- Notes that a recipient was released.
CREATE FUNCTION milestone_released() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    INSERT INTO milestones (kind, queue__id, messages__id, detail)
    VALUES ('released', OLD.id, OLD.messages__id, jsonb_strip_nulls(jsonb_build_object(
        'quarantine', OLD.metadata->>'_quarantineid', 'who', acting_for())));
    RETURN NEW;
END $$;
CREATE TRIGGER milestone_released BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status = 'HOLD' AND NEW.status = 'DELIVER') EXECUTE FUNCTION milestone_released();

-- Notes what a report says about a recipient to which one of these messages went: once for each, however often the report
-- is read.
CREATE FUNCTION milestone_reported(kind text, messages uuid[], localpart text, domain text, evidence uuid, reason text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    INSERT INTO milestones (kind, queue__id, messages__id, detail)
    SELECT milestone_reported.kind, a.id, a.messages__id,
           jsonb_build_object('evidence', evidence, 'reason', milestone_reported.reason, 'of', to_jsonb(a))
      FROM archive a
     WHERE a.messages__id = ANY (messages) AND lowered(a.recipientlocalpart) = lowered(localpart) AND lowered(a.recipientdomain) = lowered(domain)
       AND NOT EXISTS (SELECT FROM milestones m WHERE m.queue__id = a.id AND m.messages__id = a.messages__id
                          AND m.kind = milestone_reported.kind AND m.detail->>'evidence' = evidence::text)
$$;
CREATE INDEX milestones_reported ON milestones (queue__id) WHERE kind IN ('bounced', 'complained');

-- The next snapshot of an endpoint: the present one, or, where that is further off, one that sees `span` transactions more
-- than `after`, as far as the present one sees them. So a long history is read in portions, and a transaction that is not
-- over stays outside until it is, without keeping others waiting.
CREATE FUNCTION webhook_next(after pg_snapshot, span bigint) RETURNS pg_snapshot
LANGUAGE plpgsql STABLE SET search_path = pillarbox, pg_temp AS $$
DECLARE
    present pg_snapshot := pg_current_snapshot();
    newest bigint := pg_snapshot_xmax(present)::text::bigint;
    edge bigint := pg_snapshot_xmax(after)::text::bigint + span;
BEGIN
    IF edge >= newest THEN
        RETURN present;
    END IF;
    RETURN format('%s:%s:%s', least(pg_snapshot_xmin(present)::text::bigint, edge), edge,
                  (SELECT string_agg(x::text, ',' ORDER BY x) FROM pg_snapshot_xip(present) AS x WHERE x::text::bigint < edge))::pg_snapshot;
END $$;

-- Has the newest pages of history in the indexes by transaction, which autovacuum would do within minutes: pages that are not
-- are read from end to end. For clients that read while it is written; it blocks none of them, since it waits for no lock.
CREATE FUNCTION webhook_summarize() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET lock_timeout = '20ms' AS $$
DECLARE
    each regclass;
BEGIN
    FOR each IN
        SELECT i.inhrelid::regclass FROM pg_inherits i JOIN pg_index x ON x.indexrelid = i.inhrelid JOIN pg_class c ON c.oid = x.indrelid
         WHERE i.inhparent IN ('attempts_xact'::regclass, 'archive_xact'::regclass)
           AND right(c.relname, 8) IN (to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD'), to_char(now() AT TIME ZONE 'UTC' - interval '1 day', 'YYYYMMDD'))
    LOOP
        PERFORM brin_summarize_new_values(each);
    END LOOP;
EXCEPTION WHEN lock_not_available OR undefined_table OR undefined_object THEN
    NULL;
END $$;

-- These recipients, as far as they are still queued. Apart from the rest of webhook_events, because PostgreSQL locks every leaf
-- for a statement that may read the queue: with 500 leaves 5,600 locks, for each look that finds nothing.
CREATE FUNCTION webhook_waiting(ids bigint[]) RETURNS SETOF queue
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp SET enable_seqscan = off AS $$
BEGIN
    IF cardinality(ids) > 0 THEN
        RETURN QUERY SELECT q.* FROM queue q WHERE q.id = ANY (ids);
    END IF;
END $$;

-- Events of these kinds, as JSON, in the order in which they happened to each recipient: of the transactions that `upto` sees
-- and `after` does not, or, where both are NULL, by their time. `since` and `before` bound the time in both cases, so that
-- PostgreSQL opens few days. At most `most`, behind the place that is given.
--
-- The id of an event is made of what its row says and nothing else, so that it is the same whenever it is read; it names the
-- message's UUID, because numbers are given again ("Ids and timelines").
CREATE FUNCTION webhook_events(kinds text[], after pg_snapshot, upto pg_snapshot, since timestamptz, before timestamptz,
                               past bigint, past_rank integer, past_row bigint, past_id text, most integer)
RETURNS TABLE (place bigint, rank integer, recipient bigint, id text, address text, event text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = on SET enable_nestloop = off SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
    low bigint := coalesce(pg_snapshot_xmin(after)::text::bigint, 0);
    high bigint := coalesce(pg_snapshot_xmax(upto)::text::bigint, 9223372036854775807);
    by_time boolean := after IS NULL;
BEGIN
    RETURN QUERY
    WITH ended AS MATERIALIZED (
        SELECT r.* FROM archive r
         WHERE r.finished >= since AND r.finished < before AND r.xact >= low AND r.xact < high
           AND (by_time OR NOT pg_visible_in_snapshot(r.xact::text::xid8, after) AND pg_visible_in_snapshot(r.xact::text::xid8, upto))
    ), tried AS MATERIALIZED (
        SELECT t.* FROM attempts t
         WHERE t.ts >= since AND t.ts < before AND t.xact >= low AND t.xact < high AND t.outcome <> 'lease_expired'
           AND (by_time OR NOT pg_visible_in_snapshot(t.xact::text::xid8, after) AND pg_visible_in_snapshot(t.xact::text::xid8, upto))
    ), happened AS (
        -- The end comes last of what one transaction did to a recipient.
        SELECT 4 AS rank, e.xact, e.finished AS ts, e.id AS row, e.messages__id AS message, NULL::bigint AS token, NULL::jsonb AS detail,
               CASE e.result WHEN 'success' THEN 'delivered' WHEN 'expired' THEN 'expired' WHEN 'bounced' THEN 'bounced'
                             WHEN 'deleted' THEN 'deleted'
                             WHEN 'rejected' THEN CASE WHEN e.last_error LIKE 'recipient is on the suppression list%' THEN 'suppressed' ELSE 'failed' END
                             ELSE 'failed' END AS kind
          FROM ended e
        UNION ALL
        SELECT 2, t.xact, t.ts, t.queue__id, t.messages__id, t.token, NULL, 'deferred'
          FROM tried t
         WHERE t.outcome = 'deferred'
           AND NOT EXISTS (SELECT FROM ended e WHERE e.id = t.queue__id AND e.messages__id = t.messages__id AND e.xact = t.xact)
        UNION ALL
        SELECT CASE m.kind WHEN 'accepted' THEN 0 WHEN 'released' THEN 1 WHEN 'held' THEN 3 ELSE 5 END, m.xact, m.ts, m.queue__id,
               m.messages__id, NULL, m.detail, m.kind
          FROM milestones m
         WHERE m.ts >= since AND m.ts < before AND m.xact >= low AND m.xact < high
           AND (by_time OR NOT pg_visible_in_snapshot(m.xact::text::xid8, after) AND pg_visible_in_snapshot(m.xact::text::xid8, upto))
        UNION ALL
        SELECT 6, a.xact, a.made, a.id, a.alarm, NULL,
               jsonb_build_object('alarm', a.kind, 'subject', a.subject, 'at', to_char(a.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
                                  'value', a.value, 'usual', a.usual, 'score', a.score), 'report.alarm'
          FROM report_alarms a
         WHERE a.made >= since AND a.made < before AND a.xact >= low AND a.xact < high
           AND (by_time OR NOT pg_visible_in_snapshot(a.xact::text::xid8, after) AND pg_visible_in_snapshot(a.xact::text::xid8, upto))
    ), named AS (
        SELECT CASE WHEN by_time THEN (extract(epoch FROM h.ts) * 1000000)::bigint ELSE h.xact END AS place, h.*,
               format('evt_%s_%s_%s%s', replace(h.message::text, '-', ''), h.row, h.kind,
                      CASE WHEN h.kind = 'deferred' THEN '_' || to_hex(h.token)
                           WHEN h.detail ? 'evidence' THEN '_' || replace(h.detail->>'evidence', '-', '')
                           WHEN h.kind IN ('held', 'released') THEN '_' || to_hex((extract(epoch FROM h.ts) * 1000000)::bigint)
                           ELSE '' END) AS id
          FROM happened h WHERE h.kind = ANY (kinds)
    ), page AS MATERIALIZED (
        SELECT n.* FROM named n
         WHERE past IS NULL OR (n.place, n.rank, n.row, n.id) > (past, past_rank, past_row, past_id)
         ORDER BY n.place, n.rank, n.row, n.id LIMIT most
    ), asked AS MATERIALIZED (
        SELECT array_agg(p.row) AS rows, array_agg(p.message) AS messages FROM page p
         WHERE p.kind IN ('accepted', 'held', 'released', 'deferred')
    ), waiting AS MATERIALIZED (
        SELECT q.* FROM webhook_waiting((SELECT a.rows FROM asked a)) AS q
    ), gone AS MATERIALIZED (
        SELECT r.* FROM archive r
         WHERE r.messages__id = ANY ((SELECT a.messages FROM asked a)::uuid[]) AND r.id = ANY ((SELECT a.rows FROM asked a)::bigint[])
           AND r.finished >= since
    ), known AS (
        SELECT e.id, e.messages__id, e.ts, e.senderip, e.serverid, e.saslusername, e.senderlocalpart, e.senderdomain, e.recipientlocalpart,
               e.recipientdomain, e.size, e.metadata, e.transportid, e.jobid, e.priority, e.retry_count, e.last_error, e.msgid, e.subject,
               e.result, e.xact
          FROM ended e
        UNION ALL
        SELECT g.id, g.messages__id, g.ts, g.senderip, g.serverid, g.saslusername, g.senderlocalpart, g.senderdomain, g.recipientlocalpart,
               g.recipientdomain, g.size, g.metadata, g.transportid, g.jobid, g.priority, g.retry_count, NULL, g.msgid, g.subject,
               NULL, NULL
          FROM gone g
        UNION ALL
        SELECT q.id, q.messages__id, q.ts, q.senderip, q.serverid, q.saslusername, q.senderlocalpart, q.senderdomain, q.recipientlocalpart,
               q.recipientdomain, q.size, q.metadata, q.transportid, q.jobid, q.priority, q.retry_count, NULL,
               (SELECT b.msgid FROM messages b WHERE b.id = q.messages__id), (SELECT b.subject FROM messages b WHERE b.id = q.messages__id),
               NULL, NULL
          FROM waiting q
        UNION ALL
        SELECT o.id, o.messages__id, o.ts, o.senderip, o.serverid, o.saslusername, o.senderlocalpart, o.senderdomain, o.recipientlocalpart,
               o.recipientdomain, o.size, o.metadata, o.transportid, o.jobid, o.priority, o.retry_count, NULL, o.msgid, o.subject,
               NULL, p.xact
          FROM page p CROSS JOIN LATERAL jsonb_populate_record(NULL::archive, p.detail->'of') AS o
         WHERE p.rank = 5
    )
    SELECT p.place, p.rank, p.row, p.id, coalesce(k.recipientlocalpart || '@' || k.recipientdomain, ''),
           json_strip_nulls(json_build_object(
               'id', p.id, 'type', p.kind, 'timestamp', to_char(p.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'data', CASE WHEN p.rank = 6 THEN p.detail::json ELSE json_build_object(
                   'id', p.row, 'message', p.message,
                   'recipient', k.recipientlocalpart || '@' || k.recipientdomain,
                   'sender', CASE WHEN k.id IS NOT NULL THEN coalesce(k.senderlocalpart || '@' || k.senderdomain, '') END,
                   'msgid', k.msgid, 'subject', k.subject, 'user', k.saslusername, 'listener', k.serverid, 'client', k.senderip,
                   'received', to_char(k.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'size', k.size, 'transport', k.transportid,
                   'jobid', k.jobid, 'priority', k.priority, 'tries', coalesce(t.retry_count, k.retry_count),
                   'metadata', (SELECT json_object_agg(e.key, e.value) FROM jsonb_each(k.metadata) AS e WHERE left(e.key, 1) <> '_'),
                   'partition', k.metadata->>'_partid', 'result', k.result,
                   'quarantine', p.detail->>'quarantine', 'reason', p.detail->>'reason', 'who', p.detail->>'who', 'error', k.last_error,
                   'host', t.remote, 'tls', t.tls,
                   'reply', CASE WHEN t.queue__id IS NOT NULL THEN
                       json_build_object('code', t.reply_code, 'enhanced', t.reply_enhanced, 'text', t.reply_text) END) END))::text
      FROM page p
      LEFT JOIN (SELECT DISTINCT ON (k.id, k.messages__id, k.xact) k.* FROM known k ORDER BY k.id, k.messages__id, k.xact) k
        ON k.id = p.row AND k.messages__id = p.message AND coalesce(k.xact, -1) = CASE WHEN p.rank >= 4 THEN p.xact ELSE -1 END
      LEFT JOIN (SELECT DISTINCT ON (t.queue__id, t.messages__id, t.xact) t.* FROM tried t
                  ORDER BY t.queue__id, t.messages__id, t.xact, t.id DESC) t
        ON p.rank IN (2, 4) AND t.queue__id = p.row AND t.messages__id = p.message AND t.xact = p.xact
           AND (p.token IS NULL OR t.token = p.token)
     ORDER BY p.place, p.rank, p.row, p.id;
END $$;
