-- The message that a recipient, still queued or finished, belongs to.
SELECT messages__id AS message FROM pillarbox.queue WHERE id = %(id)s::bigint
UNION ALL
SELECT messages__id FROM pillarbox.archive WHERE id = %(id)s::bigint
 LIMIT 1
