-- API keys: how programs show over HTTP which principal they act for.
--
-- A key is a prefix, which is shown, and 256 random bits, which are not: only the digest of the whole is kept. So much
-- randomness needs no slow hash, and finding it by guessing takes longer than there is time.
SET LOCAL search_path = pillarbox;

CREATE TABLE api_keys (
    prefix    text PRIMARY KEY CHECK (prefix ~ '^pb_[0-9a-f]{12}$'),
    digest    bytea       NOT NULL CHECK (octet_length(digest) = 32),  -- SHA-256 of the key
    principal text        NOT NULL REFERENCES principals (name) ON UPDATE CASCADE ON DELETE CASCADE,
    scopes    text[]      NOT NULL,
    label     text,                                      -- what it is for
    made      timestamptz NOT NULL DEFAULT now(),
    maker     text        NOT NULL DEFAULT acting_for(),
    expires   timestamptz,                               -- NULL: never
    used      timestamptz,                               -- the last time, to the minute
    revoked   timestamptz,
    CONSTRAINT api_keys_scopes CHECK (scopes <@ ARRAY['send', 'read', 'review', 'operate'] AND scopes <> '{}' AND array_position(scopes, NULL) IS NULL),
    CONSTRAINT api_keys_label CHECK (length(label) <= 255 AND label !~ E'[\\x01-\\x1f\\x7f]')
);
CREATE INDEX api_keys_principal ON api_keys (principal);
SELECT settings_keep('api_keys', 'prefix');

-- Keys are changed by admins, as principals are.
CREATE FUNCTION api_keys_guarded() RETURNS trigger LANGUAGE plpgsql SET search_path = pillarbox, pg_temp AS $$
BEGIN
    IF NOT coalesce(acting_has('{admin}'), true) THEN
        RAISE EXCEPTION '% may not change API keys: only admins may', to_json(acting_for()) USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER api_keys_guarded BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION api_keys_guarded();

-- The key with this prefix and its principal, whatever their state: the caller compares the digest first, and then judges.
CREATE FUNCTION api_key_find(asked text) RETURNS TABLE (
    digest bytea, scopes text[], expires timestamptz, revoked timestamptz, principal text, kind text, roles text[], disabled boolean,
    senders text[], messages integer, recipients integer, partitionid text, transportid text, quarantineid text
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    SELECT k.digest, k.scopes, k.expires, k.revoked, p.name, p.kind, p.roles, p.disabled, p.senders, p.messages, p.recipients,
           p.partitionid, p.transportid, p.quarantineid
      FROM api_keys k JOIN principals p ON p.name = k.principal WHERE k.prefix = asked
$$;

-- Notes that these keys were used, at most once a minute each.
CREATE FUNCTION api_keys_used(prefixes text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pillarbox, pg_temp AS $$
    UPDATE api_keys k SET used = now() WHERE k.prefix = ANY (prefixes) AND (k.used IS NULL OR k.used < now() - interval '1 minute')
$$;
