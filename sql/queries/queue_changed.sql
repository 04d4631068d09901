-- The next recipients that a command changed.
SELECT r.queue__id AS id, r.messages__id AS message FROM pillarbox.audit_rows r
 WHERE r.audit__id = %(audit)s::bigint AND r.changed AND r.queue__id > %(after)s::bigint
 ORDER BY r.queue__id
 LIMIT %(batch)s::bigint
