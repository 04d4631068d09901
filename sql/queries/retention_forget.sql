-- Forgets some commands that may be forgotten, the latest first, since what undid a command names it.
WITH old AS (
    SELECT a.id FROM pillarbox.audit_older(%(before)s::timestamptz) a ORDER BY a.id DESC LIMIT %(batch)s::bigint
), forgotten AS (
    DELETE FROM pillarbox.audit a USING old WHERE a.id = old.id RETURNING 1
)
SELECT count(*) AS n FROM forgotten
