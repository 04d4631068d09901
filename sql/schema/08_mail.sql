-- The queue for people and applications to look at and act with: one row for each recipient.
SET LOCAL search_path = pillarbox;

-- The simple interface: UPDATE and DELETE on it act on the queue by its rules, with the rights of the caller.
CREATE VIEW mail AS
SELECT id, messages__id AS message, state,
       CASE WHEN senderdomain IS NULL THEN '' ELSE senderlocalpart || '@' || senderdomain END AS sender,
       recipientlocalpart || '@' || recipientdomain AS recipient, ts AS received, size, priority, next_retry,
       retry_count, last_error, metadata->>'_quarantineid' AS quarantine, metadata->>'_partid' AS partition,
       transportid AS transport
  FROM queue_state;

-- state may be set to HOLD, DELIVER, DELETE or BOUNCE; priority to -9 … 9; next_retry to a time, past meaning at once;
-- DELETE is state = 'DELETE'. A row that has finished meanwhile does not count as changed.
CREATE FUNCTION mail_acted() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    changed boolean := false;
BEGIN
    IF TG_OP = 'INSERT' THEN
        RAISE EXCEPTION 'mail is not inserted here' USING ERRCODE = 'feature_not_supported', HINT = 'SELECT pillarbox.enqueue(…)';
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE queue SET status = 'DELETE' WHERE id = OLD.id AND status <> 'DELETE';
        RETURN CASE WHEN FOUND THEN OLD END;
    END IF;
    IF (NEW.id, NEW.message, NEW.sender, NEW.recipient, NEW.received, NEW.size, NEW.retry_count) IS DISTINCT FROM
       (OLD.id, OLD.message, OLD.sender, OLD.recipient, OLD.received, OLD.size, OLD.retry_count)
       OR (NEW.last_error, NEW.quarantine, NEW.partition, NEW.transport) IS DISTINCT FROM (OLD.last_error, OLD.quarantine, OLD.partition, OLD.transport) THEN
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

-- Only the mail that the caller has enqueued itself, a principal or a login: it may look, cancel (DELETE), and change when and how urgently
-- it is sent. Holding and releasing are for operators and reviewers.
CREATE VIEW own_mail WITH (security_barrier) AS
SELECT id, messages__id AS message, state,
       CASE WHEN senderdomain IS NULL THEN '' ELSE senderlocalpart || '@' || senderdomain END AS sender,
       recipientlocalpart || '@' || recipientdomain AS recipient, size, priority, next_retry, retry_count, last_error,
       jobid, metadata
  FROM queue_state
 WHERE serverid = 'sql' AND saslusername = (SELECT acting_for());

CREATE FUNCTION own_mail_acted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF OLD.state = 'HOLD' THEN
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
CREATE TRIGGER own_mail_acted INSTEAD OF UPDATE OR DELETE ON own_mail FOR EACH ROW EXECUTE FUNCTION own_mail_acted();
