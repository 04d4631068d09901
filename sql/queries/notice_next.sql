-- The notices of one kind about one message that have waited for longer than `gather`, the longest due first; with them how
-- many notifications their sender, and all senders, got in this hour, and when the next one begins.
WITH first AS MATERIALIZED (
    SELECT messages__id, kind FROM pillarbox.notices
     WHERE due <= coalesce(%(now)s::timestamptz, now()) - %(gather)s::interval ORDER BY due, id LIMIT 1
)
SELECT n.id, n.ts, n.kind, n.messages__id, n.senderlocalpart, n.senderdomain, n.recipientlocalpart, n.recipientdomain, n.metadata,
       n.remote, n.reply_code, n.reply_enhanced, n.reply_text, n.arrived, n.will_retry_until,
       coalesce((SELECT c.notices FROM pillarbox.notice_counts c
                  WHERE c.hour = h.hour AND c.sender = n.senderlocalpart || '@' || n.senderdomain), 0) AS told,
       coalesce((SELECT c.notices FROM pillarbox.notice_counts c WHERE c.hour = h.hour AND c.sender = ''), 0) AS told_all,
       h.hour + interval '1 hour' AS next_hour, coalesce(%(now)s::timestamptz, now()) AS at
  FROM pillarbox.notices n JOIN first f ON f.messages__id = n.messages__id AND f.kind = n.kind,
       (SELECT date_trunc('hour', coalesce(%(now)s::timestamptz, now()), 'UTC') AS hour) AS h
 WHERE n.due <= coalesce(%(now)s::timestamptz, now())
 ORDER BY n.id LIMIT %(batch)s
   FOR UPDATE OF n
