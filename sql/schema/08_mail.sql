-- The queue for people and applications to look at and act with: one row for each recipient.
SET LOCAL search_path = pillarbox;

-- The simple interface: INSERT, UPDATE and DELETE on it act on the queue by its rules, with the rights of the caller. Two of
-- its columns are only written: content, and the idempotency key.
CREATE VIEW mail AS
SELECT id, messages__id AS message, state,
       CASE WHEN senderdomain IS NULL THEN '' ELSE senderlocalpart || '@' || senderdomain END AS sender,
       recipientlocalpart || '@' || recipientdomain AS recipient, ts AS received, size, priority, next_retry,
       retry_count, last_error, metadata->>'_quarantineid' AS quarantine, metadata->>'_partid' AS partition,
       transportid AS transport, jobid, metadata, NULL::bytea AS content, NULL::text AS idempotency_key
  FROM queue_state;

-- Queues what is inserted into a view of mail, with enqueue; its row in the queue. With a key that was used before it is the
-- earlier one's row, of which only id and message are left when it has finished. `given` is what an INSERT may not say.
CREATE FUNCTION mail_inserted(
    given jsonb, sender text, recipient text, content bytea, idempotency_key text, next_retry timestamptz, priority integer, metadata jsonb,
    transport text, jobid text
) RETURNS mail LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    stray text := (SELECT min(k) FROM jsonb_each(given) AS e(k, v) WHERE v <> 'null');
    queued uuid;
    found mail;
BEGIN
    IF stray IS NOT NULL THEN
        RAISE EXCEPTION 'column % cannot be inserted here', quote_ident(stray) USING ERRCODE = 'feature_not_supported',
            HINT = 'allowed: sender, recipient, content, idempotency_key, next_retry, priority, metadata, transport, jobid';
    END IF;
    queued := enqueue(sender, ARRAY[recipient], content, idempotency_key, next_retry, priority, metadata, transport, jobid);
    SELECT * INTO found FROM mail m WHERE m.message = queued;
    IF found.id IS NULL THEN
        found.message := queued;
        found.id := (SELECT a.id FROM archive a WHERE a.messages__id = queued LIMIT 1);
    END IF;
    RETURN found;
END $$;

-- INSERT is enqueue, for one recipient each row. state may be set to HOLD, DELIVER, DELETE or BOUNCE; priority to -9 … 9;
-- next_retry to a time, past meaning at once; DELETE is state = 'DELETE'. A row that has finished meanwhile does not count as
-- changed.
CREATE FUNCTION mail_acted() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    changed boolean := false;
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW := mail_inserted(
            jsonb_build_object('id', NEW.id, 'message', NEW.message, 'state', NEW.state, 'received', NEW.received, 'size', NEW.size, 'retry_count',
                               NEW.retry_count, 'last_error', NEW.last_error, 'quarantine', NEW.quarantine, 'partition', NEW.partition),
            NEW.sender, NEW.recipient, NEW.content, NEW.idempotency_key, NEW.next_retry, NEW.priority, NEW.metadata, NEW.transport, NEW.jobid);
        RETURN NEW;
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE queue SET status = 'DELETE' WHERE id = OLD.id AND status <> 'DELETE';
        RETURN CASE WHEN FOUND THEN OLD END;
    END IF;
    IF (NEW.id, NEW.message, NEW.sender, NEW.recipient, NEW.received, NEW.size, NEW.retry_count) IS DISTINCT FROM
       (OLD.id, OLD.message, OLD.sender, OLD.recipient, OLD.received, OLD.size, OLD.retry_count)
       OR (NEW.last_error, NEW.quarantine, NEW.partition, NEW.transport) IS DISTINCT FROM (OLD.last_error, OLD.quarantine, OLD.partition, OLD.transport)
       OR (NEW.jobid, NEW.metadata, NEW.content, NEW.idempotency_key) IS DISTINCT FROM (OLD.jobid, OLD.metadata, OLD.content, OLD.idempotency_key) THEN
        RAISE EXCEPTION 'only state, priority and next_retry can be changed here' USING ERRCODE = 'feature_not_supported';
    END IF;
    IF NEW.state IS DISTINCT FROM OLD.state THEN
        IF NEW.state IS NULL OR NEW.state NOT IN ('HOLD', 'DELIVER', 'DELETE', 'BOUNCE') THEN
            RAISE EXCEPTION 'state can be set to HOLD, DELIVER, DELETE or BOUNCE, not %', NEW.state USING ERRCODE = 'invalid_parameter_value';
        END IF;
        UPDATE queue q SET status = NEW.state::queue_status WHERE q.id = OLD.id;
        changed := FOUND;
    END IF;
    IF (NEW.priority, NEW.next_retry) IS DISTINCT FROM (OLD.priority, OLD.next_retry) THEN
        UPDATE queue q SET priority = priority_checked(NEW.priority), next_retry = CASE WHEN NEW.next_retry = OLD.next_retry THEN q.next_retry ELSE due_at(NEW.next_retry) END
         WHERE q.id = OLD.id;
        changed := FOUND;
    END IF;
    IF changed AND (NEW.state = 'DELIVER' OR NEW.next_retry <> OLD.next_retry) THEN
        PERFORM notify_partition(coalesce(OLD.partition, ''));
    END IF;
    RETURN CASE WHEN changed OR NEW IS NOT DISTINCT FROM OLD THEN NEW END;
END $$;
CREATE TRIGGER mail_acted INSTEAD OF INSERT OR UPDATE OR DELETE ON mail FOR EACH ROW EXECUTE FUNCTION mail_acted();

-- Only the mail that the caller has queued itself, by enqueue or over HTTP, a principal or a login: it may add to it (INSERT),
-- look, cancel (DELETE), and change when and how urgently it is sent. Holding and releasing are for operators and reviewers.
CREATE VIEW own_mail WITH (security_barrier) AS
SELECT id, messages__id AS message, state,
       CASE WHEN senderdomain IS NULL THEN '' ELSE senderlocalpart || '@' || senderdomain END AS sender,
       recipientlocalpart || '@' || recipientdomain AS recipient, size, priority, next_retry, retry_count, last_error,
       jobid, metadata, transportid AS transport, NULL::bytea AS content, NULL::text AS idempotency_key
  FROM queue_state
 WHERE serverid IN ('sql', 'http') AND saslusername = (SELECT acting_for());

CREATE FUNCTION own_mail_acted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    queued mail;
BEGIN
    IF TG_OP = 'INSERT' THEN
        queued := mail_inserted(
            jsonb_build_object('id', NEW.id, 'message', NEW.message, 'state', NEW.state, 'size', NEW.size, 'retry_count', NEW.retry_count,
                               'last_error', NEW.last_error),
            NEW.sender, NEW.recipient, NEW.content, NEW.idempotency_key, NEW.next_retry, NEW.priority, NEW.metadata, NEW.transport, NEW.jobid);
        SELECT q.id, q.message, q.state, q.sender, q.recipient, q.size, q.priority, q.next_retry, q.retry_count, q.last_error, q.jobid, q.metadata,
               q.transport, q.content, q.idempotency_key INTO NEW FROM (SELECT queued.*) AS q;
        RETURN NEW;
    ELSIF OLD.state = 'HOLD' THEN
        RAISE EXCEPTION 'mail % is on hold', OLD.id USING ERRCODE = 'insufficient_privilege';
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE queue SET status = 'DELETE' WHERE id = OLD.id AND status = 'DELIVER';
        RETURN CASE WHEN FOUND THEN OLD END;
    END IF;
    UPDATE queue q SET priority = priority_checked(NEW.priority), next_retry = CASE WHEN NEW.next_retry = OLD.next_retry THEN q.next_retry ELSE due_at(NEW.next_retry) END
     WHERE q.id = OLD.id AND q.status = 'DELIVER';
    IF FOUND THEN
        PERFORM notify_partition(coalesce(OLD.metadata->>'_partid', ''));
        RETURN NEW;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER own_mail_acted INSTEAD OF INSERT OR UPDATE OR DELETE ON own_mail FOR EACH ROW EXECUTE FUNCTION own_mail_acted();
