-- Finishes what an operator set to DELETE or BOUNCE and no worker is sending at this moment; returns the result of each.
WITH asked AS MATERIALIZED (
    SELECT id FROM pillarbox.queue
     WHERE status IN ('DELETE', 'BOUNCE') AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY id
     LIMIT %(batch)s
       FOR UPDATE SKIP LOCKED
), finished AS (
    DELETE FROM pillarbox.queue q USING asked WHERE q.status IN ('DELETE', 'BOUNCE') AND q.id = asked.id
    RETURNING q.*
), archived AS (
    INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                                   senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                                   retry_count, last_error, worker)
    SELECT id, messages__id, actionid, coalesce(%(now)s::timestamptz, now()), CASE status WHEN 'DELETE' THEN 'deleted' ELSE 'bounced' END, ts,
           senderip, serverid, saslusername, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, size, metadata,
           transportid, jobid, priority, retry_count, last_error, %(worker)s
      FROM finished
    RETURNING result
)
SELECT result, count(*) FROM archived GROUP BY result
