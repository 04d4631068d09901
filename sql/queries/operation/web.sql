-- People who use the console: their links, passwords and sessions.

-- name: web_admins
-- Whether some person is an admin already.
SELECT EXISTS (SELECT FROM pillarbox.principals p WHERE p.kind = 'person' AND NOT p.disabled AND 'admin' = ANY (p.roles)) AS any

-- name: web_decision
-- Whose link this is, and about which recipient.
SELECT principal, recipient, message, expires FROM pillarbox.decision_link(%(digest)s)

-- name: web_decision_use
-- Uses a link.
SELECT principal, recipient, message FROM pillarbox.decision_link_use(%(digest)s)

-- name: web_failure
-- Counts a sign-in; the seconds until it would be allowed, 0 where it was.
SELECT pillarbox.web_failure(%(digests)s::bytea[], %(most)s::integer[], %(span)s::interval) AS wait

-- name: web_failure_none
-- Gives back what was counted.
SELECT pillarbox.web_failure_none(%(digests)s::bytea[], %(most)s::integer[], %(span)s::interval)

-- name: web_known
-- The values of a condition's columns that are known without a look at mail: partitions, by the queue's leaves, and transports.
(SELECT DISTINCT 'partition' AS name, m[1] AS value
   FROM pg_partition_tree('pillarbox.queue_def') t JOIN pg_class c ON c.oid = t.relid,
        regexp_matches(pg_get_expr(c.relpartbound, c.oid), '''([^'']+)''', 'g') AS m
  WHERE t.isleaf ORDER BY 2 LIMIT %(limit)s::bigint)
UNION ALL
(SELECT 'transport', id FROM pillarbox.transports ORDER BY id LIMIT %(limit)s::bigint)

-- name: web_link_add
-- Makes the one link of a person, in place of an earlier one; no row when there is no such person.
INSERT INTO pillarbox.web_links AS l (digest, principal, expires)
SELECT %(digest)s, p.name, now() + %(keep)s::interval FROM pillarbox.principals p WHERE p.name = %(principal)s AND p.kind = 'person'
ON CONFLICT (principal) DO UPDATE SET digest = excluded.digest, made = now(), maker = excluded.maker, expires = excluded.expires
RETURNING l.principal, l.expires

-- name: web_link_find
-- Whose link this is.
SELECT principal, expires FROM pillarbox.web_link(%(digest)s)

-- name: web_link_use
-- Uses a link: its person has this password from now on.
SELECT principal FROM pillarbox.web_link_use(%(digest)s, %(argon2)s)

-- name: web_password
-- The hash of a person's password.
SELECT argon2 FROM pillarbox.web_password(%(principal)s)

-- name: web_passwords_any
-- Whether some person who is an admin has a password.
SELECT EXISTS (SELECT FROM pillarbox.principals p JOIN pillarbox.web_passwords w ON w.principal = p.name
                WHERE p.kind = 'person' AND NOT p.disabled AND 'admin' = ANY (p.roles)) AS any

-- name: web_person
-- What kind of principal this is, and whether it is disabled; no row when there is none.
SELECT kind, disabled FROM pillarbox.principals WHERE name = %(principal)s

-- name: web_session_begin
-- Begins a session for whom this password is still right.
SELECT id FROM pillarbox.web_session_begin(%(principal)s, %(argon2)s, %(digest)s, %(seal)s, %(span)s::interval, %(address)s, %(agent)s)

-- name: web_session_begin_named
-- Begins a session for the person whom the identity provider names.
SELECT id FROM pillarbox.web_session_begin_named(%(principal)s, %(digest)s, %(seal)s, %(span)s::interval, %(address)s, %(agent)s)

-- name: web_session_find
-- The session of this cookie, or of this number.
SELECT id, seal, principal, roles, seen FROM pillarbox.web_session(%(digest)s::bytea, %(number)s::bigint, %(idle)s::interval)

-- name: web_session_seen
-- Notes that a session was used.
SELECT pillarbox.web_session_seen(%(number)s::bigint)

-- name: web_sessions_end
-- Ends one session of whom we act for, or all.
SELECT pillarbox.web_sessions_end(%(number)s::bigint) AS ended

-- name: web_sessions_own
-- The sessions of whom we act for.
SELECT id, made, seen, address, agent FROM pillarbox.web_sessions_own()

-- name: web_view_forget
-- Forgets a view of whom we act for.
SELECT pillarbox.web_view_forget(%(name)s)

-- name: web_view_keep
-- Keeps a view of whom we act for.
SELECT pillarbox.web_view_keep(%(name)s, %(condition)s, %(by)s, %(most)s::integer) AS kept

-- name: web_views
-- The views of whom we act for.
SELECT name, condition, by FROM pillarbox.web_views_own()
