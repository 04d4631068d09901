-- Held recipients that fit a condition, in the order they came, with the beginning of their message.
SELECT q.id, q.messages__id AS message, q.metadata->>'_quarantineid' AS quarantine, q.ts AS received, q.size,
       CASE WHEN q.senderdomain IS NULL THEN '' ELSE q.senderlocalpart || '@' || q.senderdomain END AS sender,
       q.recipientlocalpart || '@' || q.recipientdomain AS recipient,
       coalesce(q.metadata->>'_holdreason', q.last_error) AS reason, q.metadata->>'_policyrule' AS rule,
       q.senderip, q.senderhelo, q.saslusername, substring(m.content FROM 1 FOR %(most)s::integer) AS beginning
  FROM pillarbox.queue q LEFT JOIN pillarbox.messages m ON m.id = q.messages__id
 WHERE {condition} AND q.status = 'HOLD' AND q.id > %(after)s::bigint
 ORDER BY q.id
 LIMIT %(limit)s::bigint
