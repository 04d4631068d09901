-- The queue for applications: enqueue inside their own transaction.
SET LOCAL search_path = pillarbox;

-- Keys an application has used, in a table of their own, because the partitioned queue cannot have such a unique
-- constraint. Each principal, and each login that acts for none, has its own keys and cannot use up, or ask about, those of
-- another. The fingerprint is of everything that enqueue was given with the key; an empty one is that of no message.
CREATE TABLE idempotency (
    application  text NOT NULL,
    key          text NOT NULL CHECK (key <> '' AND length(key) <= 255),
    messages__id uuid NOT NULL,
    ts           timestamptz NOT NULL DEFAULT now(),
    fingerprint  bytea NOT NULL DEFAULT '',
    PRIMARY KEY (application, key)
);
CREATE INDEX idempotency_ts ON idempotency (ts);

-- Forgets keys older than `keep`, at most `batch`; returns how many.
CREATE FUNCTION maintain_forget_keys(at timestamptz, keep interval, batch integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    forgotten integer;
BEGIN
    -- An array, because a join could read every key for each batch.
    DELETE FROM idempotency i WHERE i.ctid = ANY (ARRAY(
        SELECT o.ctid FROM idempotency o WHERE o.ts < at - keep ORDER BY o.ts LIMIT batch FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END $$;

CREATE FUNCTION maintain_forget_keys(keep interval, batch integer) RETURNS integer
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT maintain_forget_keys(now(), kept(keep), batch) $$;

-- When mail with this delivery time is due: a time that has passed, or none, means at once.
CREATE FUNCTION due_at(asked timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF asked >= '9999-01-01 00:00:00+00' THEN
        RAISE EXCEPTION 'mail cannot wait until %', asked USING ERRCODE = 'datetime_field_overflow', HINT = 'a time before the year 9999';
    END IF;
    RETURN greatest(asked, now());
END $$;

-- A priority as it was asked for; one out of range is refused here, in one line, before a constraint shows the whole row.
CREATE FUNCTION priority_checked(priority integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    IF priority NOT BETWEEN -9 AND 9 THEN
        RAISE EXCEPTION 'priority % is out of range; allowed: -9 to 9', priority USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN priority;
END $$;

-- A transport as it was asked for, default for none. Refused is one that no worker has: its mail would wait until it
-- expires. Before the first worker has started any is taken.
CREATE FUNCTION transport_checked(transport text) RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF transport <> 'default' AND NOT EXISTS (SELECT FROM transports t WHERE t.id = transport) AND EXISTS (SELECT FROM transports) THEN
        RAISE EXCEPTION 'transportid % is not a transport of any worker; allowed: %', to_json(left(transport, 100)),
            (SELECT string_agg(t.id, ', ' ORDER BY t.id) FROM transports t) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN coalesce(transport, 'default');
END $$;

-- Splits `local-part@domain` as shared/mail/address.py does, the domain in lower case; '' is the null sender. Refuses
-- what an envelope may not hold, and domains that are not ASCII (see partition_id).
CREATE FUNCTION address_split(address text, OUT localpart text, OUT domain text) LANGUAGE plpgsql IMMUTABLE
SET search_path = pillarbox, pg_temp AS $$
DECLARE
    inner_part text;
    octets integer[];
BEGIN
    IF address = '' THEN
        RETURN;
    END IF;
    localpart := regexp_replace(address, '@[^@]*$', '');
    domain := lower(substring(address FROM '@([^@]*)$') COLLATE "C");
    IF domain ~ E'^\\[.*\\]$' THEN  -- an address literal, RFC 5321 section 4.1.3
        inner_part := regexp_replace(substr(domain, 2, length(domain) - 2), '^ipv6:', '');
        domain := NULL;
        IF inner_part ~ '^[0-9a-f:.]+$' AND (inner_part ~ ':') = (address ~* E'@\\[ipv6:[^@]*$') THEN
            BEGIN
                -- An IPv4 address mapped into IPv6 is the same host; PostgreSQL writes it, and ::a.b.c.d, with dots.
                inner_part := regexp_replace(host(inner_part::inet), E'^::ffff:(?=[0-9]+\\.)', '');
                IF inner_part ~ E'^::[0-9]+\\.' THEN
                    octets := string_to_array(substr(inner_part, 3), '.');
                    inner_part := '::' || to_hex(octets[1] * 256 + octets[2]) || ':' || to_hex(octets[3] * 256 + octets[4]);
                END IF;
                domain := '[' || CASE WHEN inner_part ~ ':' THEN 'ipv6:' ELSE '' END || inner_part || ']';
            EXCEPTION WHEN invalid_text_representation THEN
                NULL;  -- domain stays NULL: refused below
            END;
        END IF;
    ELSIF octet_length(domain) > 255
       OR domain !~ E'^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$' THEN
        IF domain ~ E'[^\\x01-\\x7f]' THEN
            PERFORM partition_id(domain, 1);  -- says why
        END IF;
        domain := NULL;
    END IF;
    IF domain IS NULL OR address ~ E'[\\x01-\\x1f\\x7f-\\x9f\\u2028\\u2029]' OR octet_length(localpart) > 64
       OR localpart !~ E'^([A-Za-z0-9!#$%&''*+/=?^_`{|}~\\u0080-\\U0010ffff-]+(\\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~\\u0080-\\U0010ffff-]+)*|"([^"\\\\]|\\\\[ -~])*")$' THEN
        RAISE EXCEPTION 'not an address: %', to_json(left(address, 100))  -- JSON escapes line ends
            USING ERRCODE = 'invalid_parameter_value', HINT = 'local-part@domain, without angle brackets or control characters';
    END IF;
END $$;

-- The value of the first field of this name in the first 64 KiB of a message's header, unfolded, a character for each
-- octet; NULL where there is none. The header ends at the first empty line or line that is not a field.
CREATE FUNCTION header_value(content bytea, field text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pillarbox, pg_temp AS $$
DECLARE
    head text := E'\r\n' || convert_from(substring(content FROM 1 FOR 65536), 'LATIN1');
BEGIN
    head := regexp_replace(split_part(head, E'\r\n\r\n', 1), E'\\r\\n(?=[ \\t])', '', 'g');
    head := substring(head FROM E'^(?:\\r\\n[!-9;-~]+[ \\t]*:[^\\r\\n]*)*');
    RETURN (regexp_match(head, E'(?i)\\r\\n' || field || E'[ \\t]*:([^\\r\\n]*)'))[1];
END $$;

-- A field's value as one line of text, its octets beyond ASCII read as UTF-8; what are none become U+FFFD.
CREATE FUNCTION header_line(octets text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pillarbox, pg_temp AS $$
BEGIN
    octets := btrim(regexp_replace(octets, E'[\\t-\\r ]+', ' ', 'g'));
    IF octets ~ E'^[\\x01-\\x7f]*$' THEN
        RETURN octets;
    END IF;
    RETURN convert_from(convert_to(octets, 'LATIN1'), 'UTF8');
EXCEPTION WHEN data_exception THEN
    RETURN regexp_replace(octets, E'[^\\x01-\\x7f]', E'\uFFFD', 'g');
END $$;

-- A text without control characters and what turns its direction, as shared/mail/found_by.py has it.
CREATE FUNCTION header_seen(line text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pillarbox, pg_temp AS $$
    SELECT regexp_replace(line, E'[\\x01-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069]', '', 'g')
$$;

-- What an encoded word means (RFC 2047): `words` are the encoded texts of those that follow each other in one charset, for
-- a character may be spread over two. NULL where it cannot be decoded.
CREATE FUNCTION header_words(charset text, encoding text, words text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pillarbox, pg_temp AS $$
DECLARE
    octets bytea := '';
    word text;
BEGIN
    FOREACH word IN ARRAY words LOOP
        IF lower(encoding) = 'q' THEN
            octets := octets || coalesce((
                SELECT string_agg(CASE WHEN t.part[1] ~ '^=..$' THEN decode(substr(t.part[1], 2), 'hex') ELSE convert_to(t.part[1], 'UTF8') END, ''::bytea ORDER BY t.number)
                  FROM regexp_matches(translate(word, '_', ' '), '=[0-9A-Fa-f]{2}|[^=]+|=', 'g') WITH ORDINALITY AS t(part, number)), '');
        ELSE
            word := regexp_replace(word, '[^A-Za-z0-9+/]', '', 'g');
            octets := octets || decode(word || repeat('=', -length(word) & 3), 'base64');
        END IF;
    END LOOP;
    charset := lower(charset);
    RETURN convert_from(octets, CASE WHEN charset = 'us-ascii' THEN 'utf-8' ELSE charset END);
EXCEPTION WHEN data_exception OR undefined_function OR undefined_object OR feature_not_supported THEN
    RETURN NULL;
END $$;

-- The Message-ID of a message as it is kept, NULL where there is none: the same as shared/mail/found_by.py.
CREATE FUNCTION header_msgid(content bytea) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pillarbox, pg_temp AS $$
    SELECT nullif(rtrim(left(btrim(header_seen(coalesce((regexp_match(line, '<([^<>]*)>'))[1], line))), 255)), '')
      FROM header_line(left(header_value(content, 'message-id'), 1000)) AS line
$$;

-- The subject of a message as it is kept, NULL where there is none: the same as shared/mail/found_by.py, but for charsets
-- that PostgreSQL does not know, whose words stay as written.
CREATE FUNCTION header_subject(content bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pillarbox, pg_temp AS $$
DECLARE
    line text := header_line(left(header_value(content, 'subject'), 2000));
    told text := '';
    written text := '';   -- words that are not told yet, and the blanks behind them
    words text[] := '{}';
    kind text[];
    piece text[];
BEGIN
    IF strpos(line, '=?') > 0 THEN
        FOR piece IN
            SELECT p FROM regexp_matches(line || ' ', E'(=\\?([^? ]{1,40})\\?([bBqQ])\\?([^?]*)\\?=)|([^=]+|=)', 'g') AS p
        LOOP
            IF cardinality(words) > 0 AND (piece[1] IS NOT NULL AND lower(piece[2]) || piece[3] <> kind[1] || kind[2] OR piece[1] IS NULL AND piece[5] <> ' ') THEN
                told := told || coalesce(header_words(kind[1], kind[2], words), written);
                words := '{}';
                written := '';
            END IF;
            IF piece[1] IS NULL THEN
                IF cardinality(words) = 0 THEN
                    told := told || piece[5];
                END IF;
            ELSE
                kind := ARRAY[lower(piece[2]), piece[3]];
                words := words || piece[4];
                written := concat_ws(' ', nullif(written, ''), piece[1]);
            END IF;
        END LOOP;
        IF cardinality(words) > 0 THEN
            told := told || coalesce(header_words(kind[1], kind[2], words), written);
        END IF;
        line := btrim(regexp_replace(told, E'[\\t-\\r ]+', ' ', 'g'));
    END IF;
    RETURN nullif(rtrim(left(header_seen(line), 200)), '');
END $$;

-- Queues one message for its recipients inside the caller's transaction: it is sent if, and only if, that commits. With
-- a key that the caller has used before, for the same message, nothing is queued and the earlier message's id comes back;
-- for another one it is refused.
CREATE FUNCTION enqueue(
    sender text, recipients text[], content bytea, idempotency_key text DEFAULT NULL,
    deliver_at timestamptz DEFAULT NULL, priority integer DEFAULT 0, metadata jsonb DEFAULT '{}',
    transportid text DEFAULT 'default', jobid text DEFAULT NULL, smtputf8 boolean DEFAULT false
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    -- A UUIDv7 (RFC 9562 section 5.7): 48 bits of milliseconds, then random. PostgreSQL before 18 has no function for it.
    message uuid := encode(set_byte(set_byte(overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
                        6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112), 8, 128 | (get_byte(uuid_send(gen_random_uuid()), 8) & 63)), 'hex')::uuid;
    submitter principals;
    earlier uuid;
    print bytea;
    known bytea;
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
    IF content IS NOT NULL AND position(E'\\x00'::bytea IN content) = 0 THEN
        stray := replace(convert_from(content, 'LATIN1'), E'\r\n', '');
    END IF;
    IF stray IS NULL OR strpos(stray, E'\r') > 0 OR strpos(stray, E'\n') > 0 THEN
        RAISE EXCEPTION 'the content must have lines that end with CR LF, and no NUL' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    metadata := coalesce(metadata, '{}');
    IF jsonb_typeof(metadata) <> 'object' THEN
        RAISE EXCEPTION 'metadata must be a JSON object, not %', jsonb_typeof(metadata) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (SELECT FROM jsonb_object_keys(metadata) AS k WHERE k LIKE E'\\_%') THEN
        RAISE EXCEPTION 'metadata keys that begin with _ are reserved' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Every worker reads it with each claim, and no program must fail on a number or be stopped by its size.
    IF octet_length(metadata::text) > 65536 OR jsonb_path_exists(metadata, '$.**{32}')
       OR jsonb_path_exists(metadata, '$.** ? (@.type() == "number" && (@ > 1e300 || @ < -1e300))') THEN
        RAISE EXCEPTION 'metadata may have 64 KiB as text, 31 levels, and numbers up to 1e300' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF transportid || coalesce(jobid, '') ~ E'[\\x01-\\x1f\\x7f]' OR length(jobid) > 255 THEN
        RAISE EXCEPTION 'transportid and jobid may hold no control characters, and jobid 255 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    priority := coalesce(priority_checked(priority), 0);
    transportid := transport_checked(transportid);
    SELECT * INTO origin FROM address_split(sender);
    PERFORM address_split(r) FROM unnest(recipients) AS r;
    submitter := sending_checked(origin.localpart, origin.domain);
    IF idempotency_key IS NOT NULL THEN
        -- As given, what was left out by its default. The delivery time as seconds: the session's time zone is not part of it.
        print := sha256(sha256(content) || convert_to(jsonb_build_array(sender, recipients, extract(epoch FROM deliver_at)::text, priority,
                            metadata, transportid, jobid, coalesce(enqueue.smtputf8, false))::text, 'UTF8'));
        INSERT INTO idempotency AS i (application, key, messages__id, fingerprint) VALUES (submitter.name, idempotency_key, message, print)
            ON CONFLICT (application, key) DO UPDATE SET key = i.key RETURNING i.messages__id, i.fingerprint INTO earlier, known;
        IF known <> print THEN
            RAISE EXCEPTION 'idempotency key % was used for another message', to_json(left(idempotency_key, 100))
                USING ERRCODE = 'unique_violation', DETAIL = format('message %s', earlier),
                      HINT = 'allowed: everything as it was given with this key before, or another key';
        ELSIF earlier <> message THEN
            RETURN earlier;
        END IF;
    END IF;
    -- A local-part beyond ASCII can only be said to a peer that is told so (RFC 6531 section 3.4).
    INSERT INTO messages (id, size, smtputf8, content, msgid, subject)
        VALUES (message, length(content), coalesce(enqueue.smtputf8, false) OR concat(sender, recipients::text) ~ E'[^\\x01-\\x7f]', content,
                header_msgid(content), CASE WHEN (SELECT s.keepsubject FROM settings s) THEN header_subject(content) END);
    WITH addressed AS (
        SELECT r.number, a.localpart, a.domain FROM unnest(recipients) WITH ORDINALITY AS r(address, number), address_split(r.address) AS a
    ), queued AS (
        -- The age of mail that waits begins when it is due: its tries must not be used up by waiting. What a principal's
        -- mail has of its principal it has here too, as by SMTP.
        INSERT INTO queue (messages__id, actionid, status, ts, serverid, saslusername, senderlocalpart, senderdomain, recipientlocalpart,
                           recipientdomain, size, metadata, transportid, jobid, priority, next_retry)
        SELECT message, number, CASE WHEN submitter.quarantineid IS NULL THEN 'DELIVER' ELSE 'HOLD' END::queue_status, due, 'sql', submitter.name,
               origin.localpart, origin.domain, a.localpart, a.domain, length(content),
               enqueue.metadata || jsonb_strip_nulls(jsonb_build_object('_partid', coalesce(submitter.partitionid, partition_id(a.domain, count)),
                                                                        '_quarantineid', submitter.quarantineid, '_holdreason',
                                                                        CASE WHEN submitter.quarantineid IS NOT NULL THEN 'all mail of this user is held' END)),
               coalesce(nullif(enqueue.transportid, 'default'), submitter.transportid, 'default'), enqueue.jobid, enqueue.priority, due
          FROM addressed a
        RETURNING queue.metadata->>'_partid' AS partid
    )
    SELECT array_agg(DISTINCT queued.partid) INTO partids FROM queued;
    -- Also for mail that is to wait: its worker then asks when the next one is due.
    PERFORM notify_partition(partid) FROM unnest(partids) AS partid;
    RETURN message;
END $$;

-- Many at once: an array of objects with the parameters of enqueue, content as text. Returns the ids in order.
CREATE FUNCTION enqueue_batch(submissions jsonb) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
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
