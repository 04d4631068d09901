-- The console: passwords of people, one-time links to choose one, and sessions in a browser.
--
-- What a browser or a link shows is 256 random bits, of which only the digest is kept. httpd's login reads and writes these
-- tables by functions alone. See ../README.md, "Signing in".
SET LOCAL search_path = pillarbox;

CREATE TABLE web_passwords (
    principal text PRIMARY KEY REFERENCES principals (name) ON UPDATE CASCADE ON DELETE CASCADE,
    argon2    text        NOT NULL CHECK (argon2 LIKE '$argon2%'),
    changed   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE web_links (
    digest    bytea PRIMARY KEY CHECK (octet_length(digest) = 32),  -- SHA-256 of the token
    principal text        NOT NULL UNIQUE REFERENCES principals (name) ON UPDATE CASCADE ON DELETE CASCADE,  -- the latest counts
    made      timestamptz NOT NULL DEFAULT now(),
    maker     text        NOT NULL DEFAULT acting_for(),
    expires   timestamptz NOT NULL,
    CONSTRAINT web_links_expires CHECK (expires > made)
);

CREATE TABLE web_sessions (
    id        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    digest    bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),  -- SHA-256 of the cookie
    seal      bytea       NOT NULL CHECK (octet_length(seal) = 32),  -- makes the tokens of forms, and signs addresses of message bodies
    principal text        NOT NULL REFERENCES principals (name) ON UPDATE CASCADE ON DELETE CASCADE,
    made      timestamptz NOT NULL DEFAULT now(),
    seen      timestamptz NOT NULL DEFAULT now(),  -- the last request, to the minute
    expires   timestamptz NOT NULL,
    address   text        NOT NULL,
    agent     text        NOT NULL CHECK (length(agent) <= 200),
    CONSTRAINT web_sessions_expires CHECK (expires > made)
);
CREATE INDEX web_sessions_principal ON web_sessions (principal);
CREATE INDEX web_sessions_expire ON web_sessions (expires);

-- Sign-ins that failed or are being judged, by a digest of the name or the address: until when they are paid for, as each is worth
-- a part of the window (the generic cell rate algorithm, as in smtpd/rates/counters.py). For every process of httpd; a crash
-- of PostgreSQL forgets them.
CREATE UNLOGGED TABLE web_failures (
    digest     bytea       PRIMARY KEY CHECK (octet_length(digest) = 32),
    paid_until timestamptz NOT NULL
);
CREATE INDEX web_failures_paid_until ON web_failures (paid_until);

-- Links are made by admins, as keys are; passwords and sessions by the functions below.
CREATE TRIGGER web_links_guarded BEFORE INSERT OR UPDATE ON web_links
    FOR EACH STATEMENT EXECUTE FUNCTION principals_guarded();

-- The hash of a person's password; no row where there is none, or where the person may not sign in.
CREATE FUNCTION web_password(asked text) RETURNS TABLE (argon2 text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT w.argon2 FROM web_passwords w JOIN principals p ON p.name = w.principal
     WHERE w.principal = asked AND p.kind = 'person' AND NOT p.disabled
$$;

-- Whose link this is; no row for one that was used, or has expired, or whose person may not sign in.
CREATE FUNCTION web_link(asked bytea) RETURNS TABLE (principal text, expires timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT l.principal, l.expires FROM web_links l JOIN principals p ON p.name = l.principal
     WHERE l.digest = asked AND l.expires > now() AND p.kind = 'person' AND NOT p.disabled
$$;

-- Uses a link: it is gone, its person has this password, and every session of that person has ended. No row where
-- web_link gives none: of two that use it at once, one.
CREATE FUNCTION web_link_use(asked bytea, password text) RETURNS TABLE (principal text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
DECLARE
    person text;
BEGIN
    DELETE FROM web_links l USING principals p
     WHERE l.digest = asked AND l.expires > now() AND p.name = l.principal AND p.kind = 'person' AND NOT p.disabled
    RETURNING l.principal INTO person;
    IF person IS NOT NULL THEN
        INSERT INTO web_passwords (principal, argon2) VALUES (person, password)
            ON CONFLICT (principal) DO UPDATE SET argon2 = excluded.argon2, changed = now();
        DELETE FROM web_sessions s WHERE s.principal = person;
        RETURN QUERY SELECT person;
    END IF;
END $$;

-- Begins a session for the person whose password has this hash; no row if the hash is another by now, or the person may not sign in.
CREATE FUNCTION web_session_begin(person text, password text, cookie bytea, sealed bytea, span interval, address text, agent text)
RETURNS TABLE (id bigint) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM web_passwords w WHERE w.principal = person AND w.argon2 = password FOR SHARE;
    IF FOUND THEN
        RETURN QUERY SELECT b.id FROM web_session_begin_named(person, cookie, sealed, span, address, agent) AS b;
    END IF;
END $$;

-- Begins a session for this person, whom the caller has proven (the identity provider names the person, or the password is right),
-- and forgets sessions that are over; no row if the person may not sign in.
CREATE FUNCTION web_session_begin_named(person text, cookie bytea, sealed bytea, span interval, address text, agent text)
RETURNS TABLE (id bigint) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM web_sessions s WHERE s.expires <= now();
    RETURN QUERY
    INSERT INTO web_sessions AS s (digest, seal, principal, expires, address, agent)
    SELECT cookie, sealed, p.name, now() + span, web_session_begin_named.address, left(web_session_begin_named.agent, 200)
      FROM principals p
     WHERE p.name = person AND p.kind = 'person' AND NOT p.disabled
       FOR SHARE
    RETURNING s.id;
END $$;

-- The session of this cookie, or of this number, and its principal; no row where it is over, or was idle for longer.
CREATE FUNCTION web_session(cookie bytea, number bigint, idle interval)
RETURNS TABLE (id bigint, seal bytea, principal text, roles text[], seen timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT s.id, s.seal, s.principal, p.roles, s.seen
      FROM web_sessions s JOIN principals p ON p.name = s.principal
     WHERE (s.digest = cookie OR s.id = number) AND s.expires > now() AND s.seen > now() - idle
       AND p.kind = 'person' AND NOT p.disabled
$$;

-- Notes that a session was used, at most once a minute.
CREATE FUNCTION web_session_seen(number bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    UPDATE web_sessions s SET seen = now() WHERE s.id = number AND s.seen < now() - interval '1 minute'
$$;

-- The sessions of whom this transaction acts for, the latest first.
CREATE FUNCTION web_sessions_own() RETURNS TABLE (id bigint, made timestamptz, seen timestamptz, address text, agent text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT s.id, s.made, s.seen, s.address, s.agent FROM web_sessions s
     WHERE s.principal = acted_for() AND s.expires > now() ORDER BY s.seen DESC, s.id DESC LIMIT 100
$$;

-- Ends a session of whom this transaction acts for; NULL: all of them. How many.
CREATE FUNCTION web_sessions_end(number bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    ended bigint;
BEGIN
    DELETE FROM web_sessions s WHERE s.principal = acted_for() AND (number IS NULL OR s.id = number);
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
END $$;

-- Counts a sign-in against each of these, of which `most` are allowed in a window, or against none of them: the seconds until it
-- would be allowed, 0 where it was. Two at once wait for each other, so that together they get no more.
CREATE FUNCTION web_failure(digests bytea[], most integer[], span interval) RETURNS double precision
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
DECLARE
    at timestamptz;
    wait interval := '0';
BEGIN
    INSERT INTO web_failures (digest, paid_until) SELECT d, clock_timestamp() FROM unnest(digests) AS d ORDER BY d ON CONFLICT DO NOTHING;
    PERFORM FROM web_failures f WHERE f.digest = ANY (digests) ORDER BY f.digest FOR UPDATE;
    at := clock_timestamp();
    -- It is never later than `span` from now, unless the clock was put back: then the count begins anew.
    UPDATE web_failures f SET paid_until = at WHERE f.digest = ANY (digests) AND f.paid_until > at + span;
    SELECT max(greatest(f.paid_until, at) + span / a.most - at - span) INTO wait
      FROM unnest(digests, most) AS a(digest, most) JOIN web_failures f ON f.digest = a.digest;
    IF wait > '1 millisecond' THEN
        RETURN extract(epoch FROM wait);
    END IF;
    UPDATE web_failures f SET paid_until = greatest(f.paid_until, at) + span / a.most
      FROM unnest(digests, most) AS a(digest, most) WHERE f.digest = a.digest;
    DELETE FROM web_failures f WHERE f.digest = ANY (ARRAY(
        SELECT o.digest FROM web_failures o WHERE o.paid_until < at AND o.digest <> ALL (digests)
         ORDER BY o.paid_until LIMIT 100 FOR UPDATE SKIP LOCKED));
    RETURN 0;
END $$;

-- Gives back what was counted, for a sign-in that was right.
CREATE FUNCTION web_failure_none(digests bytea[], most integer[], span interval) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    UPDATE web_failures f SET paid_until = f.paid_until - span / a.most
      FROM unnest(digests, most) AS a(digest, most)
     WHERE f.digest = a.digest AND f.digest = ANY (ARRAY(SELECT l.digest FROM web_failures l WHERE l.digest = ANY (digests) ORDER BY l.digest FOR UPDATE))
$$;

-- Views of the queue that people keep: a condition and a grouping under a name of their own.
CREATE TABLE web_views (
    principal text NOT NULL REFERENCES principals (name) ON UPDATE CASCADE ON DELETE CASCADE,
    name      text NOT NULL CHECK (length(name) BETWEEN 1 AND 60),
    condition text NOT NULL CHECK (length(condition) <= 10000),
    by        text NOT NULL CHECK (length(by) <= 1000),
    PRIMARY KEY (principal, name)
);

-- Those of whom this transaction acts for, by name.
CREATE FUNCTION web_views_own() RETURNS TABLE (name text, condition text, by text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT v.name, v.condition, v.by FROM web_views v WHERE v.principal = acted_for() ORDER BY v.name
$$;

-- Keeps one, in place of the one of the same name; false where there are so many already. Two at once wait for each other.
CREATE FUNCTION web_view_keep(named text, condition text, by text, most integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
BEGIN
    PERFORM FROM principals p WHERE p.name = acted_for() FOR NO KEY UPDATE;
    IF NOT EXISTS (SELECT FROM web_views v WHERE v.principal = acted_for() AND v.name = named)
       AND (SELECT count(*) FROM web_views v WHERE v.principal = acted_for()) >= least(most, 1000) THEN
        RETURN false;
    END IF;
    INSERT INTO web_views AS v (principal, name, condition, by)
    VALUES (acted_for(), named, web_view_keep.condition, web_view_keep.by)
        ON CONFLICT (principal, name) DO UPDATE SET condition = excluded.condition, by = excluded.by;
    RETURN true;
END $$;

-- Forgets one of whom this transaction acts for.
CREATE FUNCTION web_view_forget(named text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    DELETE FROM web_views v WHERE v.principal = acted_for() AND v.name = named
$$;

-- Links of digests, by which a reviewer decides about one held recipient, once, without signing in. Operators make them, because
-- the account that runs the digest reads them; they are deleted with their use, or after their time.
CREATE TABLE decision_links (
    digest       bytea PRIMARY KEY CHECK (octet_length(digest) = 32),  -- SHA-256 of the token
    principal    text        NOT NULL REFERENCES principals (name) ON UPDATE CASCADE ON DELETE CASCADE,
    queue__id    bigint      NOT NULL,
    messages__id uuid        NOT NULL,
    made         timestamptz NOT NULL DEFAULT now(),
    expires      timestamptz NOT NULL,
    CONSTRAINT decision_links_expires CHECK (expires > made)
);
CREATE INDEX decision_links_expire ON decision_links (expires);
CREATE TRIGGER decision_links_operated BEFORE INSERT OR UPDATE ON decision_links
    FOR EACH STATEMENT WHEN (coalesce(current_setting('pillarbox.acting', true), '') <> '') EXECUTE FUNCTION operators_only();

-- Whose link this is, and about which recipient; no row for one that was used, or has expired, or whose person may not sign in.
CREATE FUNCTION decision_link(asked bytea) RETURNS TABLE (principal text, recipient bigint, message uuid, expires timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT l.principal, l.queue__id, l.messages__id, l.expires FROM decision_links l JOIN principals p ON p.name = l.principal
     WHERE l.digest = asked AND l.expires > now() AND p.kind = 'person' AND NOT p.disabled
$$;

-- Uses a link: it is gone. No row where decision_link gives none: of two that use it at once, one.
CREATE FUNCTION decision_link_use(asked bytea) RETURNS TABLE (principal text, recipient bigint, message uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM decision_links l WHERE l.expires <= now();
    RETURN QUERY
    DELETE FROM decision_links l USING principals p
     WHERE l.digest = asked AND p.name = l.principal AND p.kind = 'person' AND NOT p.disabled
    RETURNING l.principal, l.queue__id, l.messages__id;
END $$;
