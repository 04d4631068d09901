-- Lets another session maintain.
SELECT pg_advisory_unlock(hashtext('pillarbox.maintain'))
