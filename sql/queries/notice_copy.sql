-- Queues the copy of a notification for the operator.
SELECT pillarbox.notice_copy(%(recipient)s::text, %(content)s, %(transport)s, %(smtputf8)s, %(requiretls)s) AS message
