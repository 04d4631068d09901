-- How many recipients a command changed, and the highest id of them.
SELECT count(*) AS recipients, coalesce(max(queue__id), 0) AS last FROM pillarbox.audit_rows WHERE audit__id = %(id)s::bigint AND changed
