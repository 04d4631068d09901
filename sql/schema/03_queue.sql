-- Recipients: one row for each that is not finished, the indexes that claims read, and the legal moves of status.
SET LOCAL search_path = pillarbox;

CREATE TYPE queue_status AS ENUM ('HOLD', 'DELIVER', 'DELETE', 'BOUNCE');

-- The legal moves of status. The same list is in shared/mail/states.py; a test compares both with sql/README.md.
CREATE TABLE status_transitions (
    previous queue_status,           -- NULL: the row is new
    next     queue_status NOT NULL,
    UNIQUE NULLS NOT DISTINCT (previous, next)
);
INSERT INTO status_transitions (previous, next) VALUES
    (NULL, 'DELIVER'), (NULL, 'HOLD'),
    ('DELIVER', 'HOLD'), ('HOLD', 'DELIVER'),
    ('DELIVER', 'DELETE'), ('HOLD', 'DELETE'),
    ('DELIVER', 'BOUNCE'), ('HOLD', 'BOUNCE');

-- Nothing in an envelope may carry a second line into a log, a header or another command (RFC 5321 section 4.1.2). A
-- domain is checked where a value is written; a constraint of the table would be checked again by each claim.
CREATE DOMAIN envelope_text AS text CONSTRAINT envelope_text_is_one_line CHECK (VALUE !~ '[\x01-\x1f\x7f]');

CREATE SEQUENCE queue_id_seq;

-- Tokens of synthetic history; those of claims are random.
CREATE SEQUENCE claim_token_seq;

-- One row per recipient. No primary key is possible: a unique constraint would have to contain both partition keys, and
-- the second is an expression. Each leaf has UNIQUE (id); the sequence makes ids unique across leaves.
CREATE TABLE queue (
    id                 bigint       NOT NULL DEFAULT nextval('pillarbox.queue_id_seq'),
    messages__id       uuid         NOT NULL,
    actionid           integer      NOT NULL DEFAULT 1,       -- number of the recipient within its transaction
    status             queue_status NOT NULL DEFAULT 'DELIVER',
    ts                 timestamptz  NOT NULL DEFAULT now(),   -- received
    senderip           text,
    serverid           text,
    senderhelo         envelope_text,
    saslusername       envelope_text,
    senderlocalpart    envelope_text,                         -- both NULL: the null sender (RFC 5321 section 4.5.5)
    senderdomain       envelope_text,
    recipientlocalpart envelope_text NOT NULL,
    recipientdomain    envelope_text NOT NULL,
    size               integer      NOT NULL DEFAULT 0,
    metadata           jsonb,
    transportid        text         NOT NULL DEFAULT 'default',
    jobid              text,
    priority           smallint     NOT NULL DEFAULT 0,       -- urgent above 0, bulk below (RFC 6710 has -9 to 9)
    retry_count        integer      NOT NULL DEFAULT 0,       -- tries begun
    next_retry         timestamptz  NOT NULL DEFAULT now(),
    last_retry         timestamptz,
    last_error         text,
    -- The lease of a claim: in no index, so that a claim is a HOT update. With it the row is due again by itself.
    token              bigint,
    worker             text,
    lease_until        timestamptz,
    lost_count         smallint     NOT NULL DEFAULT 0,       -- claims in a row whose lease ran out without a result
    noticed            timestamptz,                           -- when its sender was notified, once, of its delay
    CONSTRAINT queue_envelope CHECK (
        recipientlocalpart <> '' AND recipientdomain <> '' AND (senderlocalpart IS NULL) = (senderdomain IS NULL)),
    CONSTRAINT queue_priority CHECK (priority BETWEEN -9 AND 9),
    CONSTRAINT queue_lease CHECK (
        (token IS NULL) = (worker IS NULL) AND (token IS NULL) = (lease_until IS NULL)
        AND retry_count >= 0 AND lost_count >= 0),
    -- Every worker reads these two columns of what it claims, and its clock ends with the year 9999: one row beyond
    -- would stop all claims of its partition.
    CONSTRAINT queue_times CHECK (
        ts >= '1970-01-01 00:00:00+00' AND ts < '9999-01-01 00:00:00+00'
        AND next_retry >= '1970-01-01 00:00:00+00' AND next_retry < '9999-01-01 00:00:00+00')
) PARTITION BY LIST (status);

CREATE TABLE queue_hold PARTITION OF queue FOR VALUES IN ('HOLD');
CREATE TABLE queue_def PARTITION OF queue DEFAULT PARTITION BY LIST ((metadata->>'_partid'));
CREATE TABLE queue_def_def PARTITION OF queue_def DEFAULT;

-- Claims read these indexes from their lower ends and nothing else: one for each class of priority, each in the order
-- mail is due.
--
-- Fresh mail is found without reading mail that waits to be tried again, and the other way round: a million retries that
-- fall due at once are older than all mail that comes later, and one index in the order of time would put them all in
-- front of it. `last_error` distinguishes the two without a further write: a result or a parking that sets it moves
-- `next_retry` as well, so it is not a HOT update anyway, and claims leave it alone. queue_due_urgent has both kinds of
-- urgent mail, for questions about all of it.
CREATE INDEX queue_due_urgent ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority > 0;
CREATE INDEX queue_due ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL;
CREATE INDEX queue_due_bulk ON queue (next_retry, id) WHERE status = 'DELIVER' AND priority < 0;

-- Recipients whose claims were lost are found without reading those that are merely due: claims look for them once a poll
-- (queued/claiming/claim.py). Nearly always empty. A claim changes lost_count only of a row that it takes over from a
-- lost one, and a result only of a row that was lost before; so all other claims and results stay HOT, which `token` in
-- the condition would end.
CREATE INDEX queue_suspect ON queue (next_retry, id) WHERE status = 'DELIVER' AND lost_count > 0;

-- Ordinary mail that was tried, and urgent mail of both kinds.
CREATE INDEX queue_due_retried ON queue (next_retry, id)
    WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL;
CREATE INDEX queue_due_urgent_fresh ON queue (next_retry, id)
    WHERE status = 'DELIVER' AND priority > 0 AND last_error IS NULL;
CREATE INDEX queue_due_urgent_retried ON queue (next_retry, id)
    WHERE status = 'DELIVER' AND priority > 0 AND last_error IS NOT NULL;

-- The sweep's anti-join, and every question about one message.
CREATE INDEX queue_messages__id ON queue (messages__id);
-- Mail that an operator deleted or bounced and a worker has yet to finish: nearly always empty.
CREATE INDEX queue_finish ON queue (id) WHERE status IN ('DELETE', 'BOUNCE');
-- Retention of held mail.
CREATE INDEX queue_hold_ts ON queue_hold (ts);
-- Reviewers look at one quarantine at a time, its oldest first.
CREATE INDEX queue_hold_quarantine ON queue_hold ((metadata->>'_quarantineid'), ts);

-- The state for people and programs: the stored status, refined by time.
CREATE VIEW queue_state AS
SELECT q.id, q.messages__id, q.actionid, q.status, q.ts, q.senderip, q.serverid, q.senderhelo, q.saslusername,
       q.senderlocalpart, q.senderdomain, q.recipientlocalpart, q.recipientdomain, q.size, q.metadata, q.transportid,
       q.jobid, q.priority, q.retry_count, q.next_retry, q.last_retry, q.last_error, q.token, q.worker, q.lease_until,
       q.lost_count,
       CASE WHEN q.status <> 'DELIVER' THEN q.status::text
            WHEN q.lease_until > now() THEN 'SENDING'
            WHEN q.next_retry <= now() THEN 'ACTIVE'
            WHEN q.retry_count = 0 THEN 'SCHEDULED'
            ELSE 'DEFER' END AS state
  FROM queue q;

-- Refuses moves that are not in status_transitions, for every role.
CREATE FUNCTION queue_moved() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF OLD.status IS DISTINCT FROM NEW.status
       AND NOT EXISTS (SELECT FROM status_transitions WHERE previous = OLD.status AND next = NEW.status) THEN
        RAISE EXCEPTION 'queue row % cannot go from % to %', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'check_violation', HINT = 'see pillarbox.status_transitions';
    END IF;
    PERFORM set_config('pillarbox.moved', 'yes', true);  -- see refcount_anew
    RETURN NEW;
END $$;

CREATE TRIGGER queue_status BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION queue_moved();
CREATE TRIGGER queue_partid BEFORE UPDATE OF metadata ON queue
    FOR EACH ROW WHEN (OLD.metadata->>'_partid' IS DISTINCT FROM NEW.metadata->>'_partid')
    EXECUTE FUNCTION queue_moved();

-- A row keeps its id and its body: another body would be miscounted.
CREATE FUNCTION queue_refused() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: it would miscount bodies', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER queue_identity BEFORE UPDATE OF id, messages__id ON queue
    FOR EACH ROW WHEN (OLD.id IS DISTINCT FROM NEW.id OR OLD.messages__id IS DISTINCT FROM NEW.messages__id)
    EXECUTE FUNCTION queue_refused();

-- A role with granted rights decides about held mail only; the owner of the queue is an operator, unless it acts for a
-- principal that is none, which may only delete what it sent by enqueue or over HTTP, and take back its own release of held
-- mail. It runs with the rights of the statement: a move by a function of ours is a move by its owner.
CREATE FUNCTION queue_reviewed() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'pillarbox.queue'::regclass), 'USAGE')
       OR coalesce(current_setting('pillarbox.acting', true), '') <> '' AND NOT is_operator()
          AND NOT (NEW.status = 'DELETE' AND OLD.serverid IN ('sql', 'http') AND coalesce(OLD.saslusername = acting_for(), false))
          AND NOT (NEW.status = 'HOLD' AND OLD.status = 'DELIVER' AND audit_takes_back(OLD.id, OLD.messages__id)) THEN
        RAISE EXCEPTION 'queue row % is not on hold: % may not move it', OLD.id,
            CASE WHEN coalesce(current_setting('pillarbox.acting', true), '') = '' THEN current_user ELSE acting_for() END
            USING ERRCODE = 'insufficient_privilege', HINT = 'operators may: members of the role that owns the queue';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER queue_reviewed BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status <> 'HOLD' AND OLD.status IS DISTINCT FROM NEW.status)
    EXECUTE FUNCTION queue_reviewed();

-- Since when a recipient is on hold, where that is not since it came: retention counts from there, so that old mail
-- that is held today is not deleted tonight.
CREATE FUNCTION queue_held() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    NEW.metadata := coalesce(NEW.metadata, '{}') || jsonb_build_object('_heldat', now());
    RETURN NEW;
END $$;
CREATE TRIGGER queue_held BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status = 'DELIVER' AND NEW.status = 'HOLD') EXECUTE FUNCTION queue_held();

-- Released mail has no reason to be held any more, whether it is released by the view `mail`, at the root or at the leaf:
-- otherwise it would be taken for poison at its next DELETE (maintain_finish). Released mail is tried now, and not when
-- its last deferral said; but mail that was to wait for its time still waits. Only undoing a hold brings back the earlier
-- time.
CREATE FUNCTION queue_released() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    NEW.metadata := NEW.metadata - ARRAY['_quarantineid', '_heldat'];
    IF NEW.next_retry = OLD.next_retry AND NOT (OLD.retry_count = 0 AND OLD.next_retry > now())
       AND current_setting('pillarbox.restoring', true) IS DISTINCT FROM 'yes' THEN
        NEW.next_retry := now();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER queue_released BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status = 'HOLD' AND NEW.status = 'DELIVER') EXECUTE FUNCTION queue_released();
