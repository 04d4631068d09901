-- Drops notices where none are to be sent, and says how many.
WITH dropped AS (
    DELETE FROM pillarbox.notices WHERE id IN (SELECT id FROM pillarbox.notices ORDER BY id LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
    RETURNING 1
)
SELECT count(*) AS notices FROM dropped
