-- Records a success of which PostgreSQL refused everything else: the recipient is finished, without a row in attempts and without
-- a notice. Returns it by id and token if the claim was still ours. {among} says where it is looked for (queued/claiming/leaves.py).
WITH finished AS (
    DELETE FROM pillarbox.queue q
     USING unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[]) AS h(claimed_id, claimed_message, claimed_token)
     WHERE q.id = ANY(%(ids)s::bigint[]) AND {among}
       AND q.id = h.claimed_id AND q.messages__id = h.claimed_message AND q.token = h.claimed_token
    RETURNING q.*, h.claimed_token
), archived AS (
    INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                                   senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                                   retry_count, worker)
    SELECT id, messages__id, actionid, coalesce(%(now)s::timestamptz, now()), %(result)s::text, ts, senderip, serverid, saslusername,
           senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority, retry_count,
           %(worker)s::text
      FROM finished
)
SELECT id, claimed_token AS token, false AS kept FROM finished
