-- The latest of the recipients that are told of now, with the beginning of their message.
SELECT q.id, q.ts AS received, q.size,
       CASE WHEN q.senderdomain IS NULL THEN '' ELSE q.senderlocalpart || '@' || q.senderdomain END AS sender,
       q.recipientlocalpart || '@' || q.recipientdomain AS recipient,
       coalesce(q.metadata->>'_holdreason', q.last_error) AS reason, substring(m.content FROM 1 FOR %(most)s::integer) AS beginning
  FROM pillarbox.digest_rows r
  JOIN pillarbox.queue q ON q.id = r.queue__id
  LEFT JOIN pillarbox.messages m ON m.id = q.messages__id
 WHERE r.quarantine = %(quarantine)s AND r.told = now() AND q.status = 'HOLD'
 ORDER BY q.id DESC
 LIMIT %(limit)s::bigint
