-- Forgets what some recipients were before commands that may be forgotten.
WITH old AS (
    SELECT r.audit__id, r.queue__id
      FROM pillarbox.audit_older(%(before)s::timestamptz) a JOIN pillarbox.audit_rows r ON r.audit__id = a.id
     LIMIT %(batch)s::bigint
), forgotten AS (
    DELETE FROM pillarbox.audit_rows r USING old WHERE r.audit__id = old.audit__id AND r.queue__id = old.queue__id RETURNING 1
)
SELECT count(*) AS n FROM forgotten
