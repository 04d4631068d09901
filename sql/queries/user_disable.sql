-- Disables a user, or enables it again; no row when there is no such user.
UPDATE pillarbox.users SET disabled = %(disabled)s, changed = now() WHERE name = %(name)s RETURNING name
