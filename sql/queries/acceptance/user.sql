-- Users that may submit after authenticating.

-- name: user_add
-- Adds a user; no row when the name is taken.
INSERT INTO pillarbox.users (name, argon2, scram, disabled, senders, messages, recipients, partitionid, transportid, quarantineid)
VALUES (%(name)s, %(argon2)s, %(scram)s, %(disabled)s, %(senders)s::text[], %(messages)s, %(recipients)s, %(partition)s,
        %(transport)s, %(hold)s)
ON CONFLICT (name) DO NOTHING RETURNING name

-- name: user_disable
-- Disables a user, or enables it again; no row when there is no such user.
UPDATE pillarbox.users SET disabled = %(disabled)s, changed = now() WHERE name = %(name)s RETURNING name

-- name: user_costs
-- What the users' verifiers cost, each pair once: the iterations of SCRAM keys, and an argon2 hash without salt and digest.
SELECT DISTINCT substring(scram FROM '^SCRAM-SHA-256[$]([0-9]+):')::integer AS iterations,
       regexp_replace(argon2, '[$][^$]*[$][^$]*$', '') AS hash
FROM pillarbox.users

-- name: user_find
-- One user by name, with verifiers: read by smtpd at each login.
SELECT name, argon2, scram, disabled, senders, messages, recipients, partitionid, transportid, quarantineid
FROM pillarbox.users WHERE name = %(name)s

-- name: user_list
-- Every user by name, with verifiers.
SELECT name, argon2, scram, disabled, senders, messages, recipients, partitionid, transportid, quarantineid
FROM pillarbox.users ORDER BY name

-- name: user_password
-- Gives a user other verifiers; no row when there is no such user.
UPDATE pillarbox.users SET argon2 = %(argon2)s, scram = %(scram)s, changed = now() WHERE name = %(name)s RETURNING name

-- name: user_remove
-- Removes a user; no row when there was none.
DELETE FROM pillarbox.users WHERE name = %(name)s RETURNING name
