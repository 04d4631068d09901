-- Queues one notification and forgets its notices.
SELECT pillarbox.notice_send(coalesce(%(now)s::timestamptz, now()), %(ids)s::bigint[], %(recipients)s::text[], %(content)s,
                             %(transport)s, %(smtputf8)s) AS message
