-- Principals: the people and applications on whose behalf something is done, and what each may do.
--
-- Behind one pooled login stand many. Such a login says in each transaction for whom it acts (act_as); everything that asks
-- who does something asks acting_for(). See ../README.md, "On whose behalf".
SET LOCAL search_path = pillarbox;

CREATE TABLE principals (
    name         text PRIMARY KEY,                     -- as SASLprep spells it (RFC 4013)
    kind         text        NOT NULL DEFAULT 'application',
    roles        text[]      NOT NULL DEFAULT '{sender}',
    reviews      text[],                               -- the quarantines it may review, of those that let it; NULL is all of them
    -- SMTP AUTH, for applications. Only smtpd reads the verifiers of passwords.
    argon2       text,                                 -- for PLAIN and LOGIN
    scram        text,                                 -- for SCRAM-SHA-256, as RFC 5803 and PostgreSQL write it
    disabled     boolean     NOT NULL DEFAULT false,
    senders      text[]      NOT NULL DEFAULT '{}',    -- addresses, domains, *.domains, '' the null sender; none is any
    messages     integer,                              -- in an hour
    recipients   integer,                              -- in an hour
    partitionid  text,
    transportid  text,
    quarantineid text,                                 -- its mail is held under it
    made         timestamptz NOT NULL DEFAULT now(),
    changed      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT principals_name CHECK (name <> '' AND octet_length(name) <= 255 AND name !~ '[\x01-\x1f\x7f]'),
    CONSTRAINT principals_kind CHECK (kind IN ('person', 'application')),
    CONSTRAINT principals_roles CHECK (roles <@ ARRAY['viewer', 'reviewer', 'operator', 'admin', 'sender'] AND array_position(roles, NULL) IS NULL),
    CONSTRAINT principals_reviews CHECK (array_position(reviews, NULL) IS NULL),
    CONSTRAINT principals_password CHECK (kind = 'application' OR (argon2 IS NULL AND scram IS NULL)),
    CONSTRAINT principals_argon2 CHECK (argon2 LIKE '$argon2%'),
    CONSTRAINT principals_scram CHECK (
        scram ~ '^SCRAM-SHA-256\$\d{4,8}:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/]{43}=:[A-Za-z0-9+/]{43}=$'),
    CONSTRAINT principals_senders CHECK (array_position(senders, NULL) IS NULL),
    CONSTRAINT principals_messages CHECK (messages > 0),
    CONSTRAINT principals_recipients CHECK (recipients > 0),
    CONSTRAINT principals_partitionid CHECK (partitionid ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    CONSTRAINT principals_transportid CHECK (transportid ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
    CONSTRAINT principals_quarantineid CHECK (quarantineid ~ '^[A-Za-z0-9._:-]{1,64}$')
);

-- The applications that may send, as smtpd reads them at a login where smtpd.yaml says `authentication.source: table`. One
-- without verifiers cannot log in.
CREATE VIEW users AS
SELECT name, argon2, scram, disabled, senders, messages, recipients, partitionid, transportid, quarantineid, made, changed
  FROM principals
 WHERE kind = 'application' AND 'sender' = ANY (roles);

-- What act_as seals its setting with. Only our functions read it: a role that could would act for whom it likes.
CREATE TABLE acting_secret (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    secret   bytea   NOT NULL DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
);
INSERT INTO acting_secret DEFAULT VALUES;

-- The seal of a principal's name in this transaction of this session and login: in another it is worth nothing. The
-- transaction's number says which it is, since several that one message begins have one time; it is given once act_as has
-- asked for it, and a server in recovery gives none. Hashed twice, so that nothing can be appended to it.
CREATE FUNCTION acting_seal(principal text) RETURNS text LANGUAGE sql STABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT encode(sha256(s.secret || sha256(s.secret || convert_to(
               format('%s %s %s %L %s', pg_backend_pid(), extract(epoch FROM now()), pg_current_xact_id_if_assigned(), session_user, principal),
               'UTF8'))), 'hex')
      FROM acting_secret s
$$;

-- For whom this transaction acts, or NULL: for its login. A setting that act_as has not made is refused.
CREATE FUNCTION acted_for() RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    claim text := coalesce(current_setting('pillarbox.acting', true), '');
BEGIN
    IF claim = '' THEN
        RETURN NULL;
    ELSIF left(claim, 64) <> acting_seal(substr(claim, 65)) THEN
        RAISE EXCEPTION 'pillarbox.acting is not a setting that pillarbox.act_as made in this transaction'
            USING ERRCODE = 'insufficient_privilege', HINT = 'SELECT pillarbox.act_as(name)';
    END IF;
    RETURN substr(claim, 65);
END $$;

-- On whose behalf something is done: the principal that this transaction acts for, else the login at PostgreSQL.
CREATE FUNCTION acting_for() RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT coalesce(acted_for(), session_user) $$;

-- Acts for a principal until the transaction ends, so that a session goes back to its pool as it came; NULL is the login
-- itself again. A statement that asks acting_for() must come after this one.
CREATE FUNCTION act_as(principal text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    off boolean;
BEGIN
    IF principal IS NULL THEN
        PERFORM set_config('pillarbox.acting', '', true);
        RETURN session_user;
    END IF;
    SELECT p.disabled INTO off FROM principals p WHERE p.name = principal;
    IF NOT FOUND OR off THEN
        RAISE EXCEPTION '%', CASE WHEN off THEN format('principal %s is disabled', to_json(left(principal, 100)))
                                  ELSE format('principal %s does not exist', to_json(left(principal, 100))) END
            USING ERRCODE = 'insufficient_privilege', HINT = '`pillarbox principal list` shows them';
    END IF;
    IF NOT pg_is_in_recovery() THEN
        PERFORM pg_current_xact_id();
    END IF;
    PERFORM set_config('pillarbox.acting', acting_seal(principal) || principal, true);
    RETURN principal;
END $$;

-- Whether there is a principal of this name, disabled or not: for a command that acts for the user who runs it, if that is one.
CREATE FUNCTION principal_known(principal text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp
AS $$ SELECT EXISTS (SELECT FROM principals p WHERE p.name = principal) $$;

-- What a principal is and may, for a server that knows its client by other means than a key: by the token of a provider.
CREATE FUNCTION principal_find(asked text) RETURNS TABLE (
    principal text, kind text, roles text[], disabled boolean, senders text[], messages integer, recipients integer,
    partitionid text, transportid text, quarantineid text
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT p.name, p.kind, p.roles, p.disabled, p.senders, p.messages, p.recipients, p.partitionid, p.transportid, p.quarantineid
      FROM principals p WHERE p.name = asked
$$;

-- Whether this transaction acts for a principal that has one of these roles; NULL where it acts for its login.
CREATE FUNCTION acting_has(asked text[]) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    principal text := acted_for();
BEGIN
    IF principal IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN EXISTS (SELECT FROM principals p WHERE p.name = principal AND NOT p.disabled AND p.roles && asked);
END $$;

-- Whether an operator does this: the login owns the queue, by itself or in the role that it has taken (SET ROLE, also as a
-- setting of the login), or acts for a principal that is one.
CREATE FUNCTION is_operator() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT coalesce(acting_has('{operator,admin}'),
                    pg_has_role(session_user, c.relowner, 'USAGE')
                    OR CASE current_setting('role') WHEN 'none' THEN false ELSE pg_has_role(current_setting('role'), c.relowner, 'USAGE') END)
      FROM pg_class c WHERE c.oid = 'pillarbox.queue'::regclass
$$;

-- Who may decide about mail that is held in this quarantine (NULL: in none): operators; and reviewers, where smtpd.yaml
-- names none for it or names this one, a principal by its name, a login also by a role that it has. A login that may act
-- for others decides nothing by itself.
CREATE FUNCTION may_review(quarantine text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    principal text := acted_for();
    named text[] := ARRAY(SELECT jsonb_array_elements_text(s.reviewers->quarantine) FROM settings s);
BEGIN
    IF is_operator() THEN
        RETURN true;
    ELSIF principal IS NOT NULL THEN
        RETURN EXISTS (SELECT FROM principals p
                        WHERE p.name = principal AND NOT p.disabled AND 'reviewer' = ANY (p.roles)
                          AND (p.reviews IS NULL OR coalesce(quarantine = ANY (p.reviews), false))
                          AND (cardinality(named) = 0 OR p.name = ANY (named)));
    END IF;
    RETURN NOT has_function_privilege(session_user, 'pillarbox.act_as(text)', 'EXECUTE')
       AND (cardinality(named) = 0
            OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = ANY (named) AND pg_has_role(session_user, r.oid, 'USAGE')));
END $$;

-- True, or refuses a decision in a quarantine that is not this reviewer's.
CREATE FUNCTION review_checked(quarantine text) RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT may_review(quarantine) THEN
        RAISE EXCEPTION '% may not decide about mail held in %', to_json(acting_for()), coalesce(to_json(quarantine)::text, 'no quarantine')
            USING ERRCODE = 'insufficient_privilege', HINT = 'allowed: operators, and the reviewers that smtpd.yaml names';
    END IF;
    RETURN true;
END $$;

-- Held mail moves by its reviewers alone. It runs with the rights of the statement: a move by a function of ours, for
-- no principal, is a move by its owner.
CREATE FUNCTION queue_decided() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF coalesce(current_setting('pillarbox.acting', true), '') <> ''
       OR NOT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'pillarbox.queue'::regclass), 'USAGE') THEN
        PERFORM review_checked(OLD.metadata->>'_quarantineid');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER queue_decided BEFORE UPDATE OF status ON queue
    FOR EACH ROW WHEN (OLD.status = 'HOLD' AND OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION queue_decided();

-- Nor does a worker's login decide: held mail is not claimed, and only a claim from before the hold finishes it. On this
-- leaf alone, so that other mail pays nothing.
CREATE FUNCTION queue_hold_kept() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT pg_has_role(current_user, (SELECT relowner FROM pg_class WHERE oid = 'pillarbox.queue'::regclass), 'USAGE') THEN
        IF TG_OP = 'UPDATE' THEN
            RAISE EXCEPTION 'queue row % is on hold: % may not claim it', OLD.id, current_user USING ERRCODE = 'insufficient_privilege';
        END IF;
        -- A move to another leaf is a DELETE here too, which queue_decided has judged: who may not DELETE does only that.
        IF has_table_privilege(current_user, 'pillarbox.queue', 'DELETE') OR has_table_privilege(current_user, TG_RELID, 'DELETE') THEN
            IF NOT has_column_privilege(current_user, 'pillarbox.queue', 'status', 'UPDATE') THEN
                RAISE EXCEPTION 'queue row % is on hold: % may not delete it', OLD.id, current_user USING ERRCODE = 'insufficient_privilege';
            END IF;
            PERFORM review_checked(OLD.metadata->>'_quarantineid');
        END IF;
    END IF;
    RETURN CASE TG_OP WHEN 'UPDATE' THEN NEW ELSE OLD END;
END $$;
CREATE TRIGGER queue_hold_claimed BEFORE UPDATE OF token ON queue_hold
    FOR EACH ROW WHEN (OLD.token IS NULL AND NEW.token IS NOT NULL) EXECUTE FUNCTION queue_hold_kept();
CREATE TRIGGER queue_hold_deleted BEFORE DELETE ON queue_hold
    FOR EACH ROW WHEN (OLD.token IS NULL) EXECUTE FUNCTION queue_hold_kept();

-- On a principal's behalf only operators change these: suspends, suppressions and schedules, each with a
-- trigger of its own. A login that acts for no principal has the rights that PostgreSQL grants it.
CREATE FUNCTION operators_only() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT is_operator() THEN
        RAISE EXCEPTION '% may not change %: only operators may', to_json(acting_for()), TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;

-- Principals are changed by admins: by the owner of the table, and not while it acts for somebody who is none.
CREATE FUNCTION principals_guarded() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT coalesce(acting_has('{admin}'), true) THEN
        RAISE EXCEPTION '% may not change principals: only admins may', to_json(acting_for()) USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER principals_guarded BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON principals
    FOR EACH STATEMENT EXECUTE FUNCTION principals_guarded();

-- Whether one of these patterns is of this sender: an address, a domain, `*.` and a domain above it, '' the null sender;
-- none at all is any. As smtpd judges it (smtpd/envelope/client.py); a test compares both.
CREATE FUNCTION sender_allowed(patterns text[], localpart text, domain text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pillarbox, pg_temp AS $$
    SELECT CASE WHEN cardinality(patterns) = 0 THEN true
                WHEN domain IS NULL THEN '' = ANY (patterns)
                ELSE localpart || '@' || domain = ANY (patterns) OR domain = ANY (patterns)
                     OR EXISTS (SELECT FROM unnest(patterns) AS p WHERE p LIKE '*.%' AND right('.' || domain, length(p) - 1) = substr(p, 2)
                                   AND length(domain) >= length(p) - 1) END
$$;

-- In whose name mail with this sender is sent: the principal with its settings, or the login alone. Refuses a principal
-- that may not send, or not as this sender. A login that acts for no principal may send as any: its rights are those that
-- PostgreSQL grants it.
CREATE FUNCTION sending_checked(localpart text, domain text) RETURNS principals
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    principal text := acted_for();
    known principals;
BEGIN
    IF principal IS NULL THEN
        known.name := session_user;
        RETURN known;
    END IF;
    SELECT * INTO known FROM principals p WHERE p.name = principal AND NOT p.disabled AND 'sender' = ANY (p.roles);
    IF NOT FOUND THEN
        RAISE EXCEPTION '% may not send mail', to_json(principal)
            USING ERRCODE = 'insufficient_privilege', HINT = 'allowed: principals with the role sender';
    ELSIF NOT sender_allowed(known.senders, localpart, domain) THEN
        RAISE EXCEPTION '% may not send as %', to_json(principal), to_json(coalesce(localpart || '@' || domain, '<>'))
            USING ERRCODE = 'insufficient_privilege', HINT = format('allowed: %s', array_to_string(known.senders, ', '));
    END IF;
    RETURN known;
END $$;

-- The field of a message, whose content fits SMTP, that names an author or sender of it whom these patterns do not allow, or
-- says so in a form that is not plain; NULL for none. Plain is: one From; in each field `address` or `Name <address>`, several
-- with commas, without comments, groups or backslashes; the header ends within 64 KiB. smtpd reads more forms: what passes here
-- passes there (smtpd/message/sender_check.py); a test compares both.
CREATE FUNCTION originator_refused(patterns text[], content bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    address CONSTANT text := E'[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&''*+/=?^_`{|}~-]+)*@[A-Za-z0-9_]+(?:[.-]+[A-Za-z0-9_]+)*';
    mailbox CONSTANT text := '(?:' || address || E'|(?:[^ \\t"()<>,:;@\\[\\]\\\\]|[ \\t]|"[^"\\\\]*"|(?:^|[ \\t])' || address || E'(?=[ \\t<]))*<' || address || '>)';
    head text := convert_from(E'\\x0d0a'::bytea || substring(content FROM 1 FOR 65536), 'LATIN1');
    ends integer := strpos(head, E'\r\n\r\n');
    found text[];
    word text;
    authors integer := 0;
BEGIN
    IF ends = 0 AND length(content) > 65536 THEN
        RETURN 'From';
    END IF;
    head := CASE WHEN ends > 0 THEN left(head, ends - 1) ELSE head END;
    FOR found IN SELECT m FROM regexp_matches(head, E'\\r\\n(from|sender|resent-from|resent-sender)[ \\t]*:((?:[^\\r]|\\r\\n[ \\t])*)', 'gi') AS m LOOP
        authors := authors + (lower(found[1] COLLATE "C") = 'from')::integer;
        IF authors > 1 OR length(found[2]) > 2000 THEN
            RETURN found[1];
        END IF;
        found[2] := btrim(replace(found[2], E'\r\n', ''), E' \t');
        IF found[2] !~ ('^' || mailbox || E'(?:[ \\t]*,[ \\t]*' || mailbox || ')*$') THEN
            RETURN found[1];
        END IF;
        FOREACH word IN ARRAY regexp_split_to_array(regexp_replace(found[2], '"[^"]*"', ' ', 'g'), E'[ \\t,<>]+') LOOP
            IF strpos(word, '@') > 0 AND (length(split_part(word, '@', 1)) > 64 OR length(word) > 64 AND split_part(word, '@', 2) ~ '[^.]{64}|.{256}'
                OR word ~ E'\\.[.-]|-\\.' OR NOT pillarbox.sender_allowed(patterns, split_part(word, '@', 1), lower(split_part(word, '@', 2) COLLATE "C"))) THEN
                RETURN found[1];
            END IF;
        END LOOP;
    END LOOP;
    RETURN CASE WHEN authors = 0 THEN 'From' END;
END $$;

-- Refuses content that names another author or sender than the principal may send as (RFC 6409 section 6.1).
CREATE FUNCTION originators_checked(known pillarbox.principals, content bytea) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    refused text := pillarbox.originator_refused(known.senders, content);
BEGIN
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION '% may not send mail with such a % field, or without it', to_json(known.name), refused
            USING ERRCODE = 'insufficient_privilege',
                  HINT = format('allowed: one From field; in From, Sender and Resent- fields only Name <address> with %s', array_to_string(known.senders, ', '));
    END IF;
END $$;
