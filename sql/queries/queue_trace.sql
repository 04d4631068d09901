-- Everything that ever happened to a message, for each recipient in the order it happened.
SELECT * FROM (
    SELECT q.ts, q.id, q.recipientlocalpart || '@' || q.recipientdomain AS recipient, 'received' AS event,
           concat_ws(' ', 'from', coalesce(q.saslusername, q.senderip), 'by', q.serverid) AS told
      FROM (SELECT id, ts, recipientlocalpart, recipientdomain, saslusername, senderip, serverid FROM pillarbox.queue WHERE messages__id = %(message)s
            UNION ALL
            SELECT id, ts, recipientlocalpart, recipientdomain, saslusername, senderip, serverid FROM pillarbox.archive WHERE messages__id = %(message)s) AS q
    UNION ALL
    SELECT a.ts, a.queue__id, '@' || a.recipientdomain, a.outcome,
           concat_ws(' ', 'try', a.retry_count, 'by', a.worker, 'at ' || a.remote, CASE WHEN a.uncertain THEN '(uncertain)' END, '-', a.reply_text)
      FROM pillarbox.attempts a WHERE a.messages__id = %(message)s
    UNION ALL
    SELECT u.ts, r.queue__id, NULL, u.verb, concat_ws(' ', 'by', coalesce(u.operator, u.who), '(audit ' || u.id || ')', '-', u.reason)
      FROM pillarbox.audit_rows r JOIN pillarbox.audit u ON u.id = r.audit__id WHERE r.messages__id = %(message)s AND r.changed
    UNION ALL
    SELECT f.finished, f.id, f.recipientlocalpart || '@' || f.recipientdomain, f.result, concat_ws(' ', 'after', f.retry_count, 'tries -', f.last_error)
      FROM pillarbox.archive f WHERE f.messages__id = %(message)s
    UNION ALL
    SELECT NULL, q.id, q.recipientlocalpart || '@' || q.recipientdomain, lower(q.state),
           concat_ws(' ', 'now', CASE WHEN q.state NOT IN ('HOLD', 'DELETE', 'BOUNCE') THEN 'next try at ' || q.next_retry END, '-', q.last_error)
      FROM pillarbox.queue_state q WHERE q.messages__id = %(message)s
) AS history
 ORDER BY id, ts NULLS LAST
 LIMIT %(limit)s::bigint
