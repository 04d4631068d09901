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

-- Takes keys for messages that the same transaction queues; returns those that were used before, by what. A key that an
-- open transaction holds is not waited for: it could be a client's, which may last for any time.
CREATE FUNCTION idempotency_take(applications text[], keys text[], messages uuid[], prints bytea[])
RETURNS TABLE (message uuid, earlier uuid, fingerprint bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp SET lock_timeout = '500ms' AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO idempotency (application, key, messages__id, fingerprint)
    SELECT a.application, a.key, a.message, a.print FROM unnest(applications, keys, messages, prints) AS a(application, key, message, print)
     ORDER BY a.application, a.key  -- so that two such do not wait for each other
        ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT a.message, i.messages__id, i.fingerprint
      FROM unnest(applications, keys, messages) AS a(application, key, message) JOIN idempotency i ON (i.application, i.key) = (a.application, a.key)
     WHERE i.messages__id <> a.message;
END $$;

-- Which of these keys of an application were used, and by what.
CREATE FUNCTION idempotency_known(asked text, keys text[]) RETURNS TABLE (key text, message uuid, fingerprint bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT i.key, i.messages__id, i.fingerprint FROM idempotency i WHERE i.application = asked AND i.key = ANY (keys)
$$;

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
AS $$ SELECT maintain_forget_keys(now(), kept(keep), batch) WHERE operator_checked() $$;

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
CREATE FUNCTION transport_checked(transport text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF coalesce(transport, 'default') = 'default' THEN
        RETURN 'default';
    ELSIF NOT EXISTS (SELECT FROM pillarbox.transports t WHERE t.id = transport) AND EXISTS (SELECT FROM pillarbox.transports) THEN
        RAISE EXCEPTION 'transportid % is not a transport of any worker; allowed: %', to_json(left(transport, 100)),
            (SELECT string_agg(t.id, ', ' ORDER BY t.id) FROM pillarbox.transports t) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN transport;
END $$;

-- Splits `local-part@domain` as shared/mail/address.py does, the domain in lower case; '' is the null sender. Refuses
-- what an envelope may not hold, and domains that are not ASCII (see partition_id).
CREATE FUNCTION address_split(address text, OUT localpart text, OUT domain text) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    inner_part text;
    octets integer[];
BEGIN
    IF address = '' THEN
        RETURN;
    ELSIF octet_length(address) <= 64
          AND address ~ E'^[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+)*@\\w+(?:-+\\w+)*(?:\\.\\w+(?:-+\\w+)*)*$' COLLATE "C" THEN
        -- Nearly every address. So short it breaks no limit, and the rules below cost ten times as much.
        localpart := split_part(address, '@', 1);
        domain := lower(split_part(address, '@', 2) COLLATE "C");
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
            PERFORM pillarbox.partition_id(domain, 1);  -- says why
        END IF;
        domain := NULL;
    END IF;
    IF domain IS NULL OR address ~ E'[\\x01-\\x1f\\x7f-\\x9f\\u2028\\u2029]' OR octet_length(localpart) > 64
       OR localpart !~ E'^([A-Za-z0-9!#$%&''*+/=?^_`{|}~\\u0080-\\U0010ffff-]+(\\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~\\u0080-\\U0010ffff-]+)*|"([^"\\\\]|\\\\[ -~])*")$' THEN
        RAISE EXCEPTION 'not an address: %', to_json(left(address, 100))  -- JSON escapes line ends
            USING ERRCODE = 'invalid_parameter_value', HINT = 'local-part@domain, without angle brackets or control characters';
    END IF;
END $$;

-- The header of a message as text, of its first 64 KiB: each field unfolded, with CR LF in front, a character for each
-- octet. It ends at the first empty line or line that is not a field.
--
-- These functions write out the schema instead of naming a search_path, which would cost more than they do: enqueue reads
-- each header with them. For the same reason what is usual comes first, by what is cheap.
CREATE FUNCTION header_read(content bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    head bytea := E'\\x0d0a'::bytea || substring(content FROM 1 FOR 65536);
    ends integer := position(E'\\x0d0a0d0a'::bytea IN head);
    fields text := convert_from(CASE WHEN ends > 0 THEN substring(head FROM 1 FOR ends - 1) ELSE head END, 'LATIN1');
BEGIN
    IF strpos(fields, E'\n ') > 0 OR strpos(fields, E'\n\t') > 0 THEN
        fields := regexp_replace(fields, E'\\r\\n(?=[ \\t])', '', 'g');
    END IF;
    IF fields ~ E'^(?:\\r\\n[!-9;-~]+:[^\\r\\n]*)*$' THEN
        RETURN fields;
    END IF;
    RETURN substring(fields FROM E'^(?:\\r\\n[!-9;-~]+[ \\t]*:[^\\r\\n]*)*');
END $$;

-- The value of the first field of this name, in lower case, in a header as header_read has it; NULL where there is none.
-- `names` is the header with its ASCII letters in lower case, so that places stay.
CREATE FUNCTION header_value(head text, names text, field text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    place integer := strpos(names, E'\n' || field);
    next text := substr(names, place + length(field) + 1, 1);
BEGIN
    IF place = 0 THEN
        RETURN NULL;
    ELSIF next = ':' THEN
        RETURN split_part(substr(head, place + length(field) + 2), E'\r', 1);
    END IF;
    RETURN substring(head FROM E'(?i)\\r\\n' || field || E'[ \\t]*:([^\\r\\n]*)');
END $$;

-- A field's value as one line of text, its octets beyond ASCII read as UTF-8; what are none become U+FFFD.
CREATE FUNCTION header_line(octets text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    octets := btrim(octets);
    IF strpos(octets, '  ') = 0 AND octets ~ '^[ -~]*$' THEN
        RETURN octets;
    END IF;
    octets := btrim(regexp_replace(octets, E'[\\t-\\r ]+', ' ', 'g'));
    IF octets ~ E'^[\\x01-\\x7f]*$' THEN
        RETURN octets;
    END IF;
    RETURN pillarbox.header_decoded(octets);
END $$;

-- Octets beyond ASCII, a character for each, read as UTF-8; what are none become U+FFFD.
CREATE FUNCTION header_decoded(octets text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN convert_from(convert_to(octets, 'LATIN1'), 'UTF8');
EXCEPTION WHEN data_exception THEN
    RETURN regexp_replace(octets, E'[^\\x01-\\x7f]', E'\uFFFD', 'g');
END $$;

-- A text without control characters and what turns its direction, as shared/mail/found_by.py has it.
CREATE FUNCTION header_seen(line text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF line ~ '^[ -~]*$' THEN
        RETURN line;
    END IF;
    RETURN regexp_replace(line, E'[\\x01-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069]', '', 'g');
END $$;

-- What an encoded word means (RFC 2047): `words` are the encoded texts of those that follow each other in one charset, for
-- a character may be spread over two. NULL where it cannot be decoded.
CREATE FUNCTION header_words(charset text, encoding text, words text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pillarbox, pg_temp AS $$
DECLARE
    octets bytea := '';
    word text;
BEGIN
    FOREACH word IN ARRAY words LOOP
        IF lower(encoding COLLATE "C") = 'q' THEN
            octets := octets || coalesce((
                SELECT string_agg(CASE WHEN t.part[1] ~ '^=..$' THEN decode(substr(t.part[1], 2), 'hex') ELSE convert_to(t.part[1], 'UTF8') END, ''::bytea ORDER BY t.number)
                  FROM regexp_matches(translate(word, '_', ' '), '=[0-9A-Fa-f]{2}|[^=]+|=', 'g') WITH ORDINALITY AS t(part, number)), '');
        ELSE
            word := regexp_replace(word, '[^A-Za-z0-9+/]', '', 'g');
            octets := octets || decode(word || repeat('=', -length(word) & 3), 'base64');
        END IF;
    END LOOP;
    charset := lower(charset COLLATE "C");
    RETURN convert_from(octets, CASE WHEN charset = 'us-ascii' THEN 'utf-8' ELSE charset END);
EXCEPTION WHEN data_exception OR undefined_function OR undefined_object OR feature_not_supported THEN
    RETURN NULL;
END $$;

-- The Message-ID of a field's value as it is kept, NULL for an empty one: the same as shared/mail/found_by.py.
CREATE FUNCTION header_msgid(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    IF length(value) <= 250 AND value ~ '^ ?<[!-;=?-~]+> ?$' THEN
        RETURN btrim(value, ' <>');
    END IF;
    value := pillarbox.header_line(left(value, 1000));
    RETURN nullif(rtrim(left(btrim(pillarbox.header_seen(coalesce(substring(value FROM '<([^<>]*)>'), value))), 255)), '');
END $$;

-- The subject of a field's value as it is kept, NULL for an empty one: the same as shared/mail/found_by.py, but for charsets
-- that PostgreSQL does not know, whose words stay as written.
CREATE FUNCTION header_subject(value text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    line text := pillarbox.header_line(left(value, 2000));
    decoded text := '';
    written text := '';   -- words that are not decoded yet, and the blanks behind them
    words text[] := '{}';
    kind text[];
    piece text[];
BEGIN
    IF strpos(line, '=?') > 0 THEN
        FOR piece IN
            SELECT p FROM regexp_matches(line || ' ', E'(=\\?([^? ]{1,40})\\?([bBqQ])\\?([^?]*)\\?=)|([^=]+|=)', 'g') AS p
        LOOP
            IF cardinality(words) > 0 AND (piece[1] IS NOT NULL AND lower(piece[2] COLLATE "C") || piece[3] <> kind[1] || kind[2] OR piece[1] IS NULL AND piece[5] <> ' ') THEN
                decoded := decoded || coalesce(pillarbox.header_words(kind[1], kind[2], words), written);
                words := '{}';
                written := '';
            END IF;
            IF piece[1] IS NULL THEN
                IF cardinality(words) = 0 THEN
                    decoded := decoded || piece[5];
                END IF;
            ELSE
                kind := ARRAY[lower(piece[2] COLLATE "C"), piece[3]];
                words := words || piece[4];
                written := concat_ws(' ', nullif(written, ''), piece[1]);
            END IF;
        END LOOP;
        IF cardinality(words) > 0 THEN
            decoded := decoded || coalesce(pillarbox.header_words(kind[1], kind[2], words), written);
        END IF;
        line := btrim(regexp_replace(decoded, E'[\\t-\\r ]+', ' ', 'g'));
    END IF;
    RETURN nullif(rtrim(left(pillarbox.header_seen(line), 200)), '');
END $$;

-- The Message-ID and the subject of a message as they are kept, and whether it says TLS-Required: No (RFC 8689 section 3).
CREATE FUNCTION header_found(content bytea, OUT msgid text, OUT subject text, OUT tls_optional boolean)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    head text := pillarbox.header_read(content);
    names text := lower(head COLLATE "C");
BEGIN
    msgid := pillarbox.header_msgid(pillarbox.header_value(head, names, 'message-id'));
    subject := pillarbox.header_subject(pillarbox.header_value(head, names, 'subject'));
    tls_optional := strpos(names, E'\ntls-required') > 0 AND names ~ E'\ntls-required[ \t]*:[ \t]*no[ \t]*(?:\r|$)';
END $$;

-- The id of the message with this number of those that are queued together: a UUIDv7 (RFC 9562 section 5.7), 48 bits of
-- milliseconds, then random. PostgreSQL before 18 has no function for it, and reading randomness for each costs more.
CREATE FUNCTION message_id_new(seed bytea, number integer) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    octets bytea := substr(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 3) || substr(sha256(seed || int4send(number)), 1, 10);
BEGIN
    RETURN encode(set_byte(set_byte(octets, 6, get_byte(octets, 6) & 15 | 112), 8, get_byte(octets, 8) & 63 | 128), 'hex')::uuid;
END $$;

-- Whether SMTP can carry this content: lines that end with CR LF, and no NUL.
CREATE FUNCTION content_fits(content bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    octets text;
BEGIN
    BEGIN
        octets := convert_from(content, 'UTF8');
    EXCEPTION WHEN character_not_in_repertoire THEN
        IF position(E'\\x00'::bytea IN content) = 0 THEN
            octets := convert_from(content, 'LATIN1');  -- which reads any octet
        END IF;
    END;
    RETURN coalesce(replace(replace(octets, E'\r', ''), E'\n', E'\r\n') = octets, false);
END $$;

-- What applications ask to be queued: the parameters of enqueue but for the content, which is left where it is.
CREATE TYPE submission AS (
    sender text, recipients text[], idempotency_key text, deliver_at timestamptz, priority integer, metadata jsonb, transportid text, jobid text,
    smtputf8 boolean
);

-- What is written of each into messages, beside the content, and for each of its recipients into queue.
CREATE TYPE submission_body AS (id uuid, smtputf8 boolean, msgid text, subject text);
CREATE TYPE submission_recipient AS (
    number integer, actionid integer, due timestamptz, senderlocalpart text, senderdomain text, recipientlocalpart text, recipientdomain text,
    metadata jsonb, transportid text, jobid text, priority integer
);

-- A submission with the defaults of what was left out. Refuses what enqueue does not take; addresses and times are checked
-- where they are read.
CREATE FUNCTION submission_checked(asked submission, content bytea) RETURNS submission LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF coalesce(cardinality(asked.recipients), 0) = 0 OR array_position(asked.recipients, NULL) IS NOT NULL OR '' = ANY (asked.recipients) THEN
        RAISE EXCEPTION 'enqueue needs at least one recipient, none of them empty' USING ERRCODE = 'invalid_parameter_value';
    ELSIF NOT pillarbox.content_fits(content) THEN
        RAISE EXCEPTION 'the content must have lines that end with CR LF, and no NUL' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    asked.metadata := coalesce(asked.metadata, '{}');
    IF asked.metadata <> '{}' THEN
        IF jsonb_typeof(asked.metadata) <> 'object' THEN
            RAISE EXCEPTION 'metadata must be a JSON object, not %', jsonb_typeof(asked.metadata) USING ERRCODE = 'invalid_parameter_value';
        ELSIF EXISTS (SELECT FROM jsonb_object_keys(asked.metadata) AS k WHERE k LIKE E'\\_%') THEN
            RAISE EXCEPTION 'metadata keys that begin with _ are reserved' USING ERRCODE = 'invalid_parameter_value';
        -- Every worker reads it with each claim, and no program must fail on a number or be stopped by its size.
        ELSIF octet_length(asked.metadata::text) > 65536 OR jsonb_path_exists(asked.metadata, '$.**{32}')
              OR jsonb_path_exists(asked.metadata, '$.** ? (@.type() == "number" && (@ > 1e300 || @ < -1e300))') THEN
            RAISE EXCEPTION 'metadata may have 64 KiB as text, 31 levels, and numbers up to 1e300' USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    IF concat(asked.transportid, asked.jobid) ~ E'[\\x01-\\x1f\\x7f]' OR length(asked.jobid) > 255 THEN
        RAISE EXCEPTION 'transportid and jobid may hold no control characters, and jobid 255 characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF length(asked.idempotency_key) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'an idempotency key has 1 to 255 characters, not %', length(asked.idempotency_key) USING ERRCODE = 'check_violation';
    END IF;
    asked.priority := coalesce(pillarbox.priority_checked(asked.priority), 0);
    asked.transportid := pillarbox.transport_checked(asked.transportid);
    asked.smtputf8 := coalesce(asked.smtputf8, false);
    RETURN asked;
END $$;

-- Everything that a key is used for, as given, what was left out by its default; SHA-512 is the faster one on long content.
-- The delivery time as seconds: the session's time zone is not part of it.
CREATE FUNCTION submission_print(asked submission, content bytea) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN sha256(sha512(content) || convert_to(jsonb_build_array(asked.sender, asked.recipients, extract(epoch FROM asked.deliver_at)::text,
        asked.priority, asked.metadata, asked.transportid, asked.jobid, asked.smtputf8)::text, 'UTF8'));
END $$;

-- Raises an error again, with the number of the submission that it is about.
CREATE FUNCTION submission_refused(number integer, state text, message text, hint text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF hint = '' THEN
        RAISE EXCEPTION 'element %: %', number, message USING ERRCODE = state;
    END IF;
    RAISE EXCEPTION 'element %: %', number, message USING ERRCODE = state, HINT = hint;
END $$;

-- Takes these keys, NULL for none, each for the message with this id, and returns of which messages they are: with a key
-- that was used before for the same submission, also by an earlier element, that one's. For another submission it is
-- refused. In the order of the keys, so that two sessions with the same ones do not deadlock; and without nested loops,
-- which would compare each with each.
CREATE FUNCTION keys_taken(owner text, keys text[], prints bytea[], ids uuid[], several boolean) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp SET enable_nestloop = off AS $$
DECLARE
    settled uuid[];
    wrong integer;
BEGIN
    WITH named AS MATERIALIZED (
        SELECT k.number, k.key, k.print, k.id, min(k.number) OVER (PARTITION BY k.key) AS first
          FROM unnest(keys, prints, ids) WITH ORDINALITY AS k(key, print, id, number)
    ), known AS (
        INSERT INTO idempotency AS i (application, key, messages__id, fingerprint)
        SELECT owner, n.key, n.id, n.print FROM named n WHERE n.key IS NOT NULL AND n.number = n.first ORDER BY n.key
            ON CONFLICT (application, key) DO UPDATE SET key = i.key RETURNING i.key, i.messages__id, i.fingerprint
    )
    SELECT array_agg(coalesce(k.messages__id, n.id) ORDER BY n.number), min(n.number) FILTER (WHERE k.fingerprint <> n.print) INTO settled, wrong
      FROM named n LEFT JOIN known k ON k.key = n.key;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '%idempotency key % was used for another message', CASE WHEN several THEN format('element %s: ', wrong) ELSE '' END,
            to_json(left(keys[wrong], 100))
            USING ERRCODE = 'unique_violation', DETAIL = format('message %s', settled[wrong]),
                  HINT = 'allowed: everything as it was given with this key before, or another key';
    END IF;
    RETURN settled;
END $$;

-- Queues these submissions inside the caller's transaction, all or none; the ids of their messages, in order. Reads and
-- checks one after the other, so that an error names the element (if there are `several`), then writes all at once.
CREATE FUNCTION submissions_queued(asked submission[], contents bytea[], several boolean) RETURNS uuid[]
LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
DECLARE
    count integer;           -- of partition ids
    keep boolean;            -- subjects
    seed bytea := uuid_send(gen_random_uuid());
    submitter principals;
    held jsonb;              -- what the metadata of held mail has
    -- The submission that is being read.
    number integer := 0;
    one submission;
    sender text;             -- of the one before
    origin record;
    address text;
    place record;
    action integer;
    beyond boolean;          -- ASCII
    found record;
    -- What is written.
    ids uuid[] := '{}';
    bodies submission_body[] := '{}';
    rows submission_recipient[] := '{}';
    keys text[] := '{}';     -- NULL for none
    prints bytea[] := '{}';
    keyed boolean := false;  -- whether any has one
    settled uuid[];          -- the ids once the keys are taken
    partids text[];
    state text;
    message text;
    hint text;
BEGIN
    SELECT s.partitions, s.keepsubject INTO count, keep FROM settings s;
    BEGIN
        FOREACH one IN ARRAY asked LOOP
            number := number + 1;
            one := submission_checked(one, contents[number]);
            keys := keys || one.idempotency_key;
            prints := prints || CASE WHEN one.idempotency_key IS NOT NULL THEN submission_print(one, contents[number]) END;
            keyed := keyed OR one.idempotency_key IS NOT NULL;
            IF number = 1 OR one.sender IS DISTINCT FROM sender THEN
                origin := address_split(one.sender);
                submitter := sending_checked(origin.localpart, origin.domain);
                sender := one.sender;
            END IF;
            IF cardinality(submitter.senders) > 0 THEN
                PERFORM originators_checked(submitter, contents[number]);
            END IF;
            -- What a principal's mail has of its principal it has here too, as by SMTP.
            IF submitter.quarantineid IS NOT NULL THEN
                one.metadata := one.metadata || jsonb_build_object('_quarantineid', submitter.quarantineid, '_holdreason', 'all mail of this user is held');
            END IF;
            found := header_found(contents[number]);
            IF found.tls_optional THEN
                one.metadata := one.metadata || '{"_tlsrequired": "no"}';
            END IF;
            -- A local-part beyond ASCII can only be sent to a peer that announces it (RFC 6531 section 3.4).
            beyond := one.smtputf8 OR octet_length(sender) <> length(sender);
            action := 0;
            FOREACH address IN ARRAY one.recipients LOOP
                place := address_split(address);
                action := action + 1;
                beyond := beyond OR octet_length(address) <> length(address);
                rows := rows || ROW(number, action, due_at(one.deliver_at), origin.localpart, origin.domain, place.localpart, place.domain,
                    one.metadata || jsonb_build_object('_partid', coalesce(submitter.partitionid, partition_id(place.domain, count))),
                    coalesce(nullif(one.transportid, 'default'), submitter.transportid, 'default'), one.jobid, one.priority)::submission_recipient;
            END LOOP;
            ids := ids || message_id_new(seed, number);
            bodies := bodies || ROW(ids[number], beyond, found.msgid, CASE WHEN keep THEN found.subject END)::submission_body;
        END LOOP;
    EXCEPTION WHEN OTHERS THEN
        IF several THEN
            GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
            PERFORM submission_refused(number, state, message, hint);
        END IF;
        RAISE;
    END;
    settled := CASE WHEN keyed THEN keys_taken(submitter.name, keys, prints, ids, several) ELSE ids END;
    WITH stored AS (
        INSERT INTO messages (id, size, smtputf8, content, msgid, subject)
        SELECT b.id, length(b.content), b.smtputf8, b.content, b.msgid, b.subject
          FROM unnest(bodies, contents, settled) AS b(id, smtputf8, msgid, subject, content, settled)
         WHERE b.id = b.settled
    ), queued AS (
        -- The age of mail that waits begins when it is due: its tries must not be used up by waiting.
        INSERT INTO queue (messages__id, actionid, status, ts, serverid, saslusername, senderlocalpart, senderdomain, recipientlocalpart,
                           recipientdomain, size, metadata, transportid, jobid, priority, next_retry)
        SELECT ids[r.number], r.actionid, CASE WHEN submitter.quarantineid IS NULL THEN 'DELIVER' ELSE 'HOLD' END::queue_status, r.due, 'sql',
               submitter.name, r.senderlocalpart, r.senderdomain, r.recipientlocalpart, r.recipientdomain, length(contents[r.number]), r.metadata,
               r.transportid, r.jobid, r.priority, r.due
          FROM unnest(rows) AS r
         WHERE ids[r.number] = settled[r.number]
        RETURNING queue.metadata->>'_partid' AS partid
    )
    SELECT array_agg(DISTINCT queued.partid) INTO partids FROM queued;
    -- Also for mail that is to wait: its worker then asks when the next one is due.
    PERFORM notify_partition(partid) FROM unnest(partids) AS partid;
    RETURN settled;
END $$;

-- Queues one message for its recipients inside the caller's transaction: it is sent if, and only if, that commits. With
-- a key that the caller has used before, for the same message, nothing is queued and the earlier message's id comes back;
-- for another one it is refused.
CREATE FUNCTION enqueue(
    sender text, recipients text[], content bytea, idempotency_key text DEFAULT NULL,
    deliver_at timestamptz DEFAULT NULL, priority integer DEFAULT 0, metadata jsonb DEFAULT '{}',
    transportid text DEFAULT 'default', jobid text DEFAULT NULL, smtputf8 boolean DEFAULT false
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    RETURN (submissions_queued(ARRAY[ROW(sender, recipients, idempotency_key, deliver_at, priority, metadata, transportid, jobid, smtputf8)::submission],
                               ARRAY[content], false))[1];
END $$;

-- Submissions as JSON has them: objects with the parameters of enqueue, content as text.
CREATE FUNCTION submissions_read(submissions jsonb, OUT asked submission[], OUT contents bytea[]) LANGUAGE plpgsql STABLE
SET search_path = pillarbox, pg_temp AS $$
BEGIN
    SELECT array_agg(ROW(s.sender, s.recipients, s.idempotency_key, s.deliver_at, s.priority, s.metadata, s.transportid, s.jobid,
                         s.smtputf8)::submission), array_agg(convert_to(s.content, 'UTF8'))
      INTO asked, contents
      FROM jsonb_to_recordset(submissions) AS s(sender text, recipients text[], content text, idempotency_key text, deliver_at timestamptz,
                                                priority integer, metadata jsonb, transportid text, jobid text, smtputf8 boolean);
END $$;

-- Many at once: an array of objects with the parameters of enqueue, content as text. Returns the ids in order. An error
-- names the element, counted from 1.
CREATE FUNCTION enqueue_batch(submissions jsonb) RETURNS SETOF uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    names CONSTANT text[] := '{sender,recipients,content,idempotency_key,deliver_at,priority,metadata,transportid,jobid,smtputf8}';
    read record;
    wrong record;
    state text;
    message text;
    hint text;
BEGIN
    IF jsonb_typeof(submissions) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'enqueue_batch needs a JSON array of objects' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT e.number, jsonb_typeof(e.value) AS type, CASE jsonb_typeof(e.value) WHEN 'object' THEN (SELECT min(k) FROM jsonb_object_keys(e.value - names) AS k) END AS unknown
      INTO wrong
      FROM jsonb_array_elements(submissions) WITH ORDINALITY AS e(value, number)
     WHERE CASE jsonb_typeof(e.value) WHEN 'object' THEN e.value - names <> '{}' ELSE true END
     ORDER BY e.number LIMIT 1;
    IF wrong.type = 'object' THEN  -- a misspelt deliver_at would be sent at once
        RAISE EXCEPTION 'element %: enqueue has no parameter %', wrong.number, quote_literal(wrong.unknown)
            USING ERRCODE = 'invalid_parameter_value', HINT = format('allowed: %s', array_to_string(names, ', '));
    ELSIF FOUND THEN
        RAISE EXCEPTION 'element %: enqueue_batch needs a JSON array of objects, not %', wrong.number, wrong.type USING ERRCODE = 'invalid_parameter_value';
    END IF;
    BEGIN
        read := submissions_read(submissions);
    EXCEPTION WHEN data_exception THEN
        FOR wrong IN SELECT e.value, e.number FROM jsonb_array_elements(submissions) WITH ORDINALITY AS e(value, number) LOOP
            BEGIN
                PERFORM submissions_read(jsonb_build_array(wrong.value));
            EXCEPTION WHEN data_exception THEN
                GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
                PERFORM submission_refused(wrong.number::integer, state, message, hint);
            END;
        END LOOP;
        RAISE;
    END;
    RETURN QUERY SELECT unnest(submissions_queued(coalesce(read.asked, '{}'), coalesce(read.contents, '{}'), true));
END $$;
