-- The migrations this database has.
SELECT number, name FROM pillarbox.migrations ORDER BY number
