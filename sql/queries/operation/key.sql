-- API keys: made, found, listed and revoked.

-- name: key_add
-- Adds a key; no row when there is no such principal.
INSERT INTO pillarbox.api_keys (prefix, digest, principal, scopes, label, expires)
SELECT %(prefix)s, %(digest)s, p.name, %(scopes)s, %(label)s, %(expires)s FROM pillarbox.principals p WHERE p.name = %(principal)s
RETURNING prefix

-- name: key_find
-- The key with this prefix, its digest, and its principal.
SELECT * FROM pillarbox.api_key_find(%(prefix)s)

-- name: key_list
-- Every key, those of one principal or of all, without digests; the newest first.
SELECT prefix, principal, scopes, label, made, maker, expires, used, revoked,
       CASE WHEN revoked IS NOT NULL THEN 'revoked' WHEN expires <= now() THEN 'expired' ELSE 'valid' END AS state
  FROM pillarbox.api_keys
 WHERE %(principal)s::text IS NULL OR principal = %(principal)s
 ORDER BY made DESC, prefix

-- name: key_revoke
-- Revokes a key; no row when there is none. One that is revoked stays so since then.
UPDATE pillarbox.api_keys SET revoked = coalesce(revoked, now()) WHERE prefix = %(prefix)s RETURNING prefix, principal

-- name: key_roles
-- The roles of a principal; no row when there is none.
SELECT roles FROM pillarbox.principals WHERE name = %(principal)s

-- name: keys_used
-- Notes that these keys were used.
SELECT pillarbox.api_keys_used(%(prefixes)s)
