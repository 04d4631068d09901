-- Held mail and audit rows that are older than their retention.

-- name: retention_audit
-- How many commands may be deleted, the oldest of them, and whether the caller may delete them.
SELECT count(*) AS commands, min(ts) AS oldest, has_table_privilege('pillarbox.audit', 'DELETE') AS allowed
  FROM pillarbox.audit_older(%(before)s::timestamptz)

-- name: retention_forget
-- Forgets some commands that may be forgotten, the latest first, since what undid a command names it.
WITH forgotten AS (
    DELETE FROM pillarbox.audit a
     WHERE a.id = ANY (ARRAY(SELECT o.id FROM pillarbox.audit_older(%(before)s::timestamptz) o ORDER BY o.id DESC LIMIT %(batch)s::bigint))
    RETURNING 1
)
SELECT count(*) AS n FROM forgotten

-- name: retention_forget_rows
-- Forgets what some recipients were before commands that may be forgotten.
WITH forgotten AS (
    DELETE FROM pillarbox.audit_rows r
     WHERE r.ctid = ANY (ARRAY(
           SELECT o.ctid FROM pillarbox.audit_older(%(before)s::timestamptz) a JOIN pillarbox.audit_rows o ON o.audit__id = a.id
            LIMIT %(batch)s::bigint))
    RETURNING 1
)
SELECT count(*) AS n FROM forgotten

-- name: retention_forgot
-- Adds to the audit row of a retention how many commands it forgot.
UPDATE pillarbox.audit SET done = done + %(commands)s::bigint WHERE id = %(id)s::bigint
