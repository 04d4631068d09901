-- Removes a user; no row when there was none.
DELETE FROM pillarbox.users WHERE name = %(name)s RETURNING name
