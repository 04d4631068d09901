-- Gives a user other verifiers; no row when there is no such user.
UPDATE pillarbox.users SET argon2 = %(argon2)s, scram = %(scram)s, changed = now() WHERE name = %(name)s RETURNING name
