-- What operators and reviewers did to the queue, and what is needed to undo it.
SET LOCAL search_path = pillarbox;

-- One row for each command that acted. `done` and `skipped` grow with each batch, in the batch's own transaction: after a
-- crash they say exactly what was done, and `finished` is not set.
CREATE TABLE audit (
    id        bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    ts        timestamptz NOT NULL DEFAULT now(),
    who       text        NOT NULL DEFAULT session_user,  -- the login at PostgreSQL: nobody can write another's name
    operator  text,                                       -- whom the command took itself to be run by
    verb      text        NOT NULL CHECK (verb IN ('hold', 'release', 'copy', 'retry', 'delay', 'priority', 'move', 'bounce', 'delete',
                                                   'undo', 'rescan', 'retention')),
    condition text        NOT NULL,                       -- as written; '' is every recipient
    argument  jsonb       NOT NULL DEFAULT '{}',          -- the time, priority, transport … that was given
    reason    text,
    undoes    bigint      REFERENCES audit,
    wanted    bigint      NOT NULL,                       -- recipients that fitted when it began
    done      bigint      NOT NULL DEFAULT 0,
    skipped   bigint      NOT NULL DEFAULT 0,             -- in a worker's hand, or finished meanwhile
    finished  timestamptz,
    undone    timestamptz
);
CREATE INDEX audit_ts ON audit (ts);

-- What each recipient was before: status, next_retry, priority, transport, partition, quarantine.
CREATE TABLE audit_rows (
    audit__id    bigint NOT NULL REFERENCES audit ON DELETE CASCADE,
    queue__id    bigint NOT NULL,
    messages__id uuid   NOT NULL,
    before       jsonb  NOT NULL,
    PRIMARY KEY (audit__id, queue__id)
);
CREATE INDEX audit_rows_messages__id ON audit_rows (messages__id);

-- The commands that may be forgotten: begun before a time, and at their end or given up; not one that a remembered one undid.
CREATE FUNCTION audit_older(before timestamptz) RETURNS SETOF audit LANGUAGE sql STABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT a.* FROM audit a
     WHERE a.ts < before AND (a.finished IS NOT NULL OR a.ts < now() - interval '1 day')
       AND NOT EXISTS (SELECT FROM audit u
                        WHERE u.undoes = a.id AND NOT (u.ts < before AND (u.finished IS NOT NULL OR u.ts < now() - interval '1 day')));
$$;

-- Reviewers look at one quarantine at a time, its oldest first.
CREATE INDEX queue_hold_quarantine ON queue_hold ((metadata->>'_quarantineid'), ts);

-- Since when a recipient is on hold, where that is not since it came: retention counts from there, so that old mail that is
-- held today is not deleted tonight.
CREATE FUNCTION queue_held() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    NEW.metadata := coalesce(NEW.metadata, '{}') || jsonb_build_object('_heldat', now());
    RETURN NEW;
END $$;
CREATE TRIGGER queue_held BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status = 'DELIVER' AND NEW.status = 'HOLD') EXECUTE FUNCTION queue_held();

-- Mail that is released is tried now, and not when its last deferral said; but what was to wait for its time still waits.
-- Whoever releases, by whatever way; only undoing a hold brings back the time that was.
CREATE OR REPLACE FUNCTION queue_released() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    NEW.metadata := NEW.metadata - ARRAY['_quarantineid', '_heldat'];
    IF NEW.next_retry = OLD.next_retry AND NOT (OLD.retry_count = 0 AND OLD.next_retry > now())
       AND current_setting('pillarbox.restoring', true) IS DISTINCT FROM 'yes' THEN
        NEW.next_retry := now();
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER queue_released ON queue;
CREATE TRIGGER queue_released BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status = 'HOLD' AND NEW.status = 'DELIVER') EXECUTE FUNCTION queue_released();

-- Releases copies of held recipients and leaves the held ones where they are: new rows, in a transaction like any other.
-- With the rights of its owner, and only for what is held, so that reviewers may.
CREATE FUNCTION queue_release_copies(ids bigint[], to_localpart text, to_domain text) RETURNS TABLE (id bigint, partid text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    INSERT INTO queue (messages__id, actionid, ts, senderip, serverid, senderhelo, saslusername, senderlocalpart, senderdomain,
                       recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority)
    SELECT q.messages__id, q.actionid, now(), q.senderip, q.serverid, q.senderhelo, q.saslusername, q.senderlocalpart, q.senderdomain,
           coalesce(to_localpart, q.recipientlocalpart), coalesce(to_domain, q.recipientdomain), q.size,
           q.metadata - ARRAY['_quarantineid', '_heldat'] || jsonb_build_object('_copyof', q.id::text)
               || CASE WHEN to_domain IS NULL THEN '{}'
                       ELSE jsonb_build_object('_partid', partition_id(to_domain, (SELECT s.partitions FROM settings s))) END,
           q.transportid, q.jobid, q.priority
      FROM queue q
     WHERE q.id = ANY (ids) AND q.status = 'HOLD'
     ORDER BY q.id
    RETURNING queue.id, queue.metadata->>'_partid';
END $$;

-- Who works with granted rights reads all that was done, and writes only what they did; the owner of the queue is not bound.
ALTER TABLE audit ENABLE ROW LEVEL SECURITY;
CREATE POLICY audit_read ON audit FOR SELECT USING (true);
CREATE POLICY audit_begin ON audit FOR INSERT WITH CHECK (who = session_user);
CREATE POLICY audit_write ON audit FOR UPDATE USING (who = session_user);
ALTER TABLE audit_rows ENABLE ROW LEVEL SECURITY;
CREATE POLICY audit_rows_read ON audit_rows FOR SELECT USING (true);
CREATE POLICY audit_rows_write ON audit_rows FOR INSERT
    WITH CHECK (audit__id IN (SELECT a.id FROM pillarbox.audit a WHERE a.who = session_user AND a.finished IS NULL));

REVOKE ALL ON FUNCTION queue_release_copies(bigint[], text, text), audit_older(timestamptz), queue_held() FROM PUBLIC;
DO $$
BEGIN
    IF to_regrole('pillarbox_reviewer') IS NOT NULL THEN
        GRANT SELECT ON audit, audit_rows TO pillarbox_reviewer;
        GRANT INSERT (operator, verb, condition, argument, reason, undoes, wanted), UPDATE (done, skipped, finished, undone) ON audit TO pillarbox_reviewer;
        GRANT INSERT ON audit_rows TO pillarbox_reviewer;
        GRANT SELECT ON attempts, archive TO pillarbox_reviewer;
        GRANT EXECUTE ON FUNCTION queue_release_copies, audit_older TO pillarbox_reviewer;
    END IF;
    IF to_regrole('pillarbox_analyst') IS NOT NULL THEN
        GRANT SELECT ON audit TO pillarbox_analyst;
    END IF;
END $$;
