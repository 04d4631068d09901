-- The queue for applications: enqueue inside their own transaction, and a simple view to look and act with.
SET LOCAL search_path = pillarbox;

-- What the code's configuration says and SQL must know too; `pillarbox migrate` writes it.
CREATE TABLE settings (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    partitions integer NOT NULL DEFAULT 6 CHECK (partitions BETWEEN 1 AND 1024)  -- environment.database.partitions.count
);
INSERT INTO settings DEFAULT VALUES;

-- The partition id of a domain: the same function as shared/mail/partition.py, a test compares them. Only A-labels: PostgreSQL
-- cannot turn `größe` into `xn--gre-6ka8i`, and the U-label's own hash would be another partition than smtpd chooses.
CREATE FUNCTION partition_id(domain text, count integer) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF domain ~ '[^\x01-\x7f]' THEN
        RAISE EXCEPTION 'not an ASCII domain: %', to_json(left(domain, 100))
            USING ERRCODE = 'invalid_parameter_value', HINT = 'write international domains as A-labels (xn--…, RFC 5890)';
    END IF;
    RETURN (('x' || encode(substr(sha256(convert_to(lower(domain COLLATE "C"), 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint
            % count + 1)::text;
END $$;

-- Keys an application has used, in a table of their own: a unique constraint on the partitioned queue is not to be had.
-- Each login has its own: nobody can use up, or ask after, the keys of another.
CREATE TABLE idempotency (
    application  text NOT NULL,
    key          text NOT NULL CHECK (key <> '' AND length(key) <= 255),
    messages__id uuid NOT NULL,
    ts           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (application, key)
);
CREATE INDEX idempotency_ts ON idempotency (ts);

-- Forgets keys older than `keep`, at most `batch`; returns how many.
CREATE FUNCTION maintain_forget_keys(at timestamptz, keep interval, batch integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    forgotten integer;
BEGIN
    WITH old AS MATERIALIZED (
        SELECT application, key FROM idempotency WHERE ts < at - keep ORDER BY ts LIMIT batch FOR UPDATE SKIP LOCKED
    )
    DELETE FROM idempotency i USING old WHERE i.application = old.application AND i.key = old.key;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;

-- Every worker reads these two columns of what it claims, and its clock ends with the year 9999: one row beyond would stop
-- all claims of its partition.
ALTER TABLE queue ADD CONSTRAINT queue_times CHECK (
    ts >= '1970-01-01 00:00:00+00' AND ts < '9999-01-01 00:00:00+00'
    AND next_retry >= '1970-01-01 00:00:00+00' AND next_retry < '9999-01-01 00:00:00+00');

-- When mail that is asked for at this time is due: what has passed, or is not said, means at once.
CREATE FUNCTION due_at(asked timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF asked >= '9999-01-01 00:00:00+00' THEN
        RAISE EXCEPTION 'mail cannot wait until %', asked USING ERRCODE = 'datetime_field_overflow', HINT = 'a time before the year 9999';
    END IF;
    RETURN greatest(asked, now());
END $$;

-- Splits `local-part@domain` as shared/mail/address.py does, the domain in lower case; '' is the null sender. Refuses what an
-- envelope may not hold, and domains that are not ASCII (see partition_id).
CREATE FUNCTION address_split(address text, OUT localpart text, OUT domain text) LANGUAGE plpgsql IMMUTABLE
SET search_path = pillarbox, pg_temp AS $$
DECLARE
    inner_part text;
BEGIN
    IF address = '' THEN
        RETURN;
    END IF;
    localpart := regexp_replace(address, '@[^@]*$', '');
    domain := lower(substring(address FROM '@([^@]*)$') COLLATE "C");
    IF domain ~ '^\[.*\]$' THEN  -- an address literal, RFC 5321 section 4.1.3
        inner_part := regexp_replace(substr(domain, 2, length(domain) - 2), '^ipv6:', '');
        domain := NULL;
        IF inner_part ~ '^[0-9a-f:.]+$' AND (inner_part ~ ':') = (address ~* '@\[ipv6:[^@]*$') THEN
            BEGIN
                domain := '[' || CASE WHEN inner_part ~ ':' THEN 'IPv6:' ELSE '' END || host(inner_part::inet) || ']';
            EXCEPTION WHEN invalid_text_representation THEN
                NULL;  -- domain stays NULL: refused below
            END;
        END IF;
    ELSIF octet_length(domain) > 255
       OR domain !~ '^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$' THEN
        IF domain ~ '[^\x01-\x7f]' THEN
            PERFORM partition_id(domain, 1);  -- says why
        END IF;
        domain := NULL;
    END IF;
    IF domain IS NULL OR address ~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]' OR octet_length(localpart) > 64
       OR localpart !~ '^([A-Za-z0-9!#$%&''*+/=?^_`{|}~\u0080-\U0010ffff-]+(\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~\u0080-\U0010ffff-]+)*|"([^"\\]|\\[ -~])*")$' THEN
        RAISE EXCEPTION 'not an address: %', to_json(left(address, 100))  -- JSON escapes line ends
            USING ERRCODE = 'invalid_parameter_value', HINT = 'local-part@domain, without angle brackets or control characters';
    END IF;
END $$;

-- Queues one message for its recipients inside the caller's transaction: it is sent if, and only if, that commits. With a
-- key this login has used before, nothing is queued and the earlier message's id comes back.
CREATE FUNCTION enqueue(
    sender text, recipients text[], content bytea, idempotency_key text DEFAULT NULL, deliver_at timestamptz DEFAULT NULL,
    priority integer DEFAULT 0, metadata jsonb DEFAULT '{}', transportid text DEFAULT 'default', jobid text DEFAULT NULL,
    smtputf8 boolean DEFAULT false
) RETURNS uuid LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    -- A UUIDv7 (RFC 9562 section 5.7): 48 bits of milliseconds, then random. PostgreSQL before 18 has no function for it.
    message uuid := encode(set_byte(set_byte(overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
                        6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 8, 128 | (get_byte(uuid_send(gen_random_uuid()), 8) & 63)), 'hex')::uuid;
    earlier uuid;
    count integer := (SELECT s.partitions FROM settings s);
    due timestamptz := due_at(deliver_at);
    origin record;
    stray text;
    partids text[];
BEGIN
    IF coalesce(cardinality(recipients), 0) = 0 OR array_position(recipients, NULL) IS NOT NULL OR '' = ANY (recipients) THEN
        RAISE EXCEPTION 'enqueue needs at least one recipient, none of them empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- LATIN1 reads any octet, so this looks at line ends in whatever the content is written in.
    IF content IS NOT NULL AND position('\x00'::bytea IN content) = 0 THEN
        stray := replace(convert_from(content, 'LATIN1'), E'\r\n', '');
    END IF;
    IF stray IS NULL OR strpos(stray, E'\r') > 0 OR strpos(stray, E'\n') > 0 THEN
        RAISE EXCEPTION 'the content must have lines that end with CR LF, and no NUL' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    metadata := coalesce(metadata, '{}');
    IF jsonb_typeof(metadata) <> 'object' THEN
        RAISE EXCEPTION 'metadata must be a JSON object, not %', jsonb_typeof(metadata) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (SELECT FROM jsonb_object_keys(metadata) AS k WHERE k LIKE '\_%') THEN
        RAISE EXCEPTION 'metadata keys that begin with _ are reserved' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF transportid || coalesce(jobid, '') ~ '[\x01-\x1f\x7f]' THEN
        RAISE EXCEPTION 'transportid and jobid may hold no control characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO origin FROM address_split(sender);
    PERFORM address_split(r) FROM unnest(recipients) AS r;
    IF idempotency_key IS NOT NULL THEN
        INSERT INTO idempotency AS i (application, key, messages__id) VALUES (session_user, idempotency_key, message)
            ON CONFLICT (application, key) DO UPDATE SET key = i.key RETURNING i.messages__id INTO earlier;
        IF earlier <> message THEN
            RETURN earlier;
        END IF;
    END IF;
    -- A local-part beyond ASCII can only be said to a peer that is told so (RFC 6531 section 3.4).
    INSERT INTO messages (id, size, smtputf8, content)
        VALUES (message, length(content), coalesce(enqueue.smtputf8, false) OR concat(sender, recipients::text) ~ '[^\x01-\x7f]', content);
    WITH addressed AS (
        SELECT r.number, a.localpart, a.domain FROM unnest(recipients) WITH ORDINALITY AS r(address, number), address_split(r.address) AS a
    ), queued AS (
        -- The age of mail that waits begins when it is due: its tries must not be used up by waiting.
        INSERT INTO queue (messages__id, actionid, ts, serverid, saslusername, senderlocalpart, senderdomain, recipientlocalpart,
                           recipientdomain, size, metadata, transportid, jobid, priority, next_retry)
        SELECT message, number, due, 'sql', session_user, origin.localpart, origin.domain, a.localpart, a.domain, length(content),
               enqueue.metadata || jsonb_build_object('_partid', partition_id(a.domain, count)),
               coalesce(enqueue.transportid, 'default'), enqueue.jobid, coalesce(enqueue.priority, 0), due
          FROM addressed a
        RETURNING queue.metadata->>'_partid' AS partid
    )
    SELECT array_agg(DISTINCT queued.partid) INTO partids FROM queued;
    -- Also for mail that is to wait: its worker then asks when the next one is due.
    PERFORM pg_notify('pillarbox', partid) FROM unnest(partids) AS partid;
    RETURN message;
END $$;

-- Many at once: an array of objects with the parameters of enqueue, content as text. Returns the ids in order.
CREATE FUNCTION enqueue_batch(submissions jsonb) RETURNS SETOF uuid LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    one record;
    unknown text;
BEGIN
    IF jsonb_typeof(submissions) IS DISTINCT FROM 'array' OR EXISTS (SELECT FROM jsonb_array_elements(submissions) AS e WHERE jsonb_typeof(e) <> 'object') THEN
        RAISE EXCEPTION 'enqueue_batch needs a JSON array of objects' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT k INTO unknown FROM jsonb_array_elements(submissions) AS e, jsonb_object_keys(e) AS k
     WHERE k NOT IN ('sender', 'recipients', 'content', 'idempotency_key', 'deliver_at', 'priority', 'metadata', 'transportid', 'jobid', 'smtputf8')
     LIMIT 1;
    IF FOUND THEN  -- a misspelt deliver_at would be sent at once
        RAISE EXCEPTION 'enqueue has no parameter %', quote_literal(unknown) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR one IN
        SELECT * FROM jsonb_to_recordset(submissions) AS s(sender text, recipients text[], content text, idempotency_key text,
            deliver_at timestamptz, priority integer, metadata jsonb, transportid text, jobid text, smtputf8 boolean)
    LOOP
        RETURN NEXT enqueue(one.sender, one.recipients, convert_to(one.content, 'UTF8'), one.idempotency_key, one.deliver_at,
            one.priority, one.metadata, one.transportid, one.jobid, one.smtputf8);
    END LOOP;
END $$;

-- The simple face: one row per recipient; UPDATE and DELETE on it act on the queue by its rules, with the rights of whoever
-- asks (roles are in the next migration).
CREATE VIEW mail AS
SELECT id, messages__id AS message, state, CASE WHEN senderdomain IS NULL THEN '' ELSE senderlocalpart || '@' || senderdomain END AS sender,
       recipientlocalpart || '@' || recipientdomain AS recipient, ts AS received, size, priority, next_retry, retry_count, last_error,
       metadata->>'_quarantineid' AS quarantine, metadata->>'_partid' AS partition, transportid AS transport
  FROM queue_state;

-- state may be set to HOLD, DELIVER, DELETE or BOUNCE; priority to -9 … 9; next_retry to a time, past meaning at once;
-- DELETE is state = 'DELETE'. What has finished meanwhile does not count as changed.
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
        UPDATE queue q SET priority = NEW.priority, next_retry = CASE WHEN NEW.next_retry = OLD.next_retry THEN q.next_retry ELSE due_at(NEW.next_retry) END
         WHERE q.id = OLD.id;
        changed := FOUND;
    END IF;
    IF changed AND (NEW.state = 'DELIVER' OR NEW.next_retry <> OLD.next_retry) THEN
        PERFORM pg_notify('pillarbox', coalesce(OLD.partition, ''));
    END IF;
    RETURN CASE WHEN changed OR NEW IS NOT DISTINCT FROM OLD THEN NEW END;
END $$;
CREATE TRIGGER mail_acted INSTEAD OF INSERT OR UPDATE OR DELETE ON mail FOR EACH ROW EXECUTE FUNCTION mail_acted();

-- What the login that asks has enqueued itself, and nothing else: it may look, cancel (DELETE), and change when and how
-- urgently it is sent. Holding and releasing are for operators and reviewers.
CREATE VIEW own_mail WITH (security_barrier) AS
SELECT id, messages__id AS message, state, CASE WHEN senderdomain IS NULL THEN '' ELSE senderlocalpart || '@' || senderdomain END AS sender,
       recipientlocalpart || '@' || recipientdomain AS recipient, size, priority, next_retry, retry_count, last_error, jobid, metadata
  FROM queue_state
 WHERE serverid = 'sql' AND saslusername = session_user;

CREATE FUNCTION own_mail_acted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF OLD.state = 'HOLD' THEN
        RAISE EXCEPTION 'mail % is on hold', OLD.id USING ERRCODE = 'insufficient_privilege';
    ELSIF TG_OP = 'DELETE' THEN
        UPDATE queue SET status = 'DELETE' WHERE id = OLD.id AND status = 'DELIVER';
        RETURN CASE WHEN FOUND THEN OLD END;
    END IF;
    UPDATE queue q SET priority = NEW.priority, next_retry = CASE WHEN NEW.next_retry = OLD.next_retry THEN q.next_retry ELSE due_at(NEW.next_retry) END
     WHERE q.id = OLD.id AND q.status = 'DELIVER';
    IF FOUND THEN
        PERFORM pg_notify('pillarbox', coalesce(OLD.metadata->>'_partid', ''));
        RETURN NEW;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER own_mail_acted INSTEAD OF UPDATE OR DELETE ON own_mail FOR EACH ROW EXECUTE FUNCTION own_mail_acted();

-- What finished without success: `body` says whether it could be sent again, `requeued` whether it was.
CREATE VIEW dead_letters AS
SELECT a.id, a.messages__id AS message, a.finished, a.result,
       CASE WHEN a.senderdomain IS NULL THEN '' ELSE a.senderlocalpart || '@' || a.senderdomain END AS sender,
       a.recipientlocalpart || '@' || a.recipientdomain AS recipient, a.recipientdomain AS domain, a.ts AS received, a.size, a.retry_count,
       a.last_error, a.worker, a.metadata->>'_partid' AS partition, a.transportid AS transport, a.jobid,
       EXISTS (SELECT FROM messages m WHERE m.id = a.messages__id) AS body,
       EXISTS (SELECT FROM queue q WHERE q.messages__id = a.messages__id AND q.metadata->>'_requeued' = a.id::text)
         OR EXISTS (SELECT FROM archive b WHERE b.messages__id = a.messages__id AND b.metadata->>'_requeued' = a.id::text) AS requeued
  FROM archive a
 WHERE archive_is_dead(a.result);
