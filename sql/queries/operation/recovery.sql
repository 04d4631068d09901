-- A database that was restored from a backup: what is held, what was delivered since, what goes on.

-- name: recovery_absent
-- Those of these messages that the queue and the archive do not have.
SELECT wanted.id AS message FROM unnest(%(messages)s::uuid[]) AS wanted(id)
 WHERE NOT EXISTS (SELECT FROM pillarbox.messages m WHERE m.id = wanted.id)
   AND NOT EXISTS (SELECT FROM pillarbox.archive a WHERE a.messages__id = wanted.id)
 ORDER BY 1

-- name: recovery_begun
-- Commands that held a restored queue and whose recipients have not been released, the first one first.
SELECT id, ts, operator, who, reason, wanted, done, finished FROM pillarbox.audit WHERE verb = 'recover' AND undone IS NULL ORDER BY id

-- name: recovery_candidates
-- The next recipients on hold that arrived before a time, with the Message-ID of their message.
SELECT q.id, q.messages__id AS message, q.recipientlocalpart || '@' || q.recipientdomain AS recipient, m.msgid
  FROM pillarbox.queue_hold q LEFT JOIN pillarbox.messages m ON m.id = q.messages__id
 WHERE q.ts <= %(before)s AND q.id > %(after)s::bigint
 ORDER BY q.id
 LIMIT %(batch)s::bigint

-- name: recovery_figures
-- What is on hold, how much of it a recovery holds, and how many recipients were settled since it began.
SELECT (SELECT count(*) FROM pillarbox.queue_hold) AS held,
       (SELECT count(*) FROM pillarbox.queue_hold WHERE metadata->>'_quarantineid' = 'recovery') AS waiting,
       (SELECT coalesce(sum(done), 0)::bigint FROM pillarbox.audit WHERE verb = 'settle' AND id > %(first)s::bigint) AS settled

-- name: recovery_history
-- How these recipients finished, according to another database: the server that was lost, or a copy of it.
SELECT a.id, a.messages__id AS message, a.recipientlocalpart || '@' || a.recipientdomain AS recipient, a.result, a.finished,
       a.last_error, a.worker, a.retry_count
  FROM pillarbox.archive a
 WHERE a.messages__id = ANY (%(messages)s::uuid[])
 ORDER BY a.id

-- name: recovery_hold
-- Puts locked recipients on hold until it is known what became of them.
UPDATE pillarbox.queue q
   SET status = 'HOLD', metadata = coalesce(q.metadata, '{}') || '{"_quarantineid": "recovery"}'
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status = 'DELIVER'
RETURNING q.id, NULL AS partid

-- name: recovery_known
-- How often mail of these messages, or with these Message-IDs, was delivered to a recipient according to this database.
SELECT a.messages__id AS message, a.msgid, a.recipientlocalpart || '@' || a.recipientdomain AS recipient, count(*) AS n
  FROM pillarbox.archive a
 WHERE a.result = 'success' AND (a.messages__id = ANY (%(messages)s::uuid[])
    OR a.msgid IS NOT NULL AND hashtextextended(a.msgid, 0) = ANY (SELECT hashtextextended(m COLLATE "C", 0) FROM unnest(%(msgids)s::text[]) AS m)
       AND a.msgid = ANY (%(msgids)s::text[]))
 GROUP BY 1, 2, 3

-- name: recovery_notices
-- How many notifications to senders wait, and how many of them until a recovery ends.
SELECT count(*) AS notices, count(*) FILTER (WHERE due = '9000-01-01 00:00:00+00') AS held FROM pillarbox.notices

-- name: recovery_notices_drop
-- Forgets the notifications that wait until a recovery ends; how many.
WITH dropped AS (DELETE FROM pillarbox.notices WHERE due = '9000-01-01 00:00:00+00' RETURNING 1) SELECT count(*) AS n FROM dropped

-- name: recovery_notices_hold
-- Keeps notifications to senders until the recovery ends; how many.
WITH held AS (UPDATE pillarbox.notices SET due = '9000-01-01 00:00:00+00' RETURNING 1) SELECT count(*) AS n FROM held

-- name: recovery_notices_release
-- Has the notifications sent that waited until a recovery ends; how many.
WITH due AS (UPDATE pillarbox.notices SET due = now() WHERE due = '9000-01-01 00:00:00+00' RETURNING 1) SELECT count(*) AS n FROM due

-- name: recovery_overdue_finish
-- Finishes mail that was deleted or bounced before the backup; no rows once there is none.
SELECT result, recipients FROM pillarbox.maintain_finish('recover', %(batch)s)

-- name: recovery_server
-- The target at which this server ended its recovery, '' without one, and whether the queue was held on this timeline.
SELECT coalesce((SELECT name || ' = ' || setting FROM pg_settings
                  WHERE name IN ('recovery_target', 'recovery_target_lsn', 'recovery_target_name', 'recovery_target_time', 'recovery_target_xid')
                    AND setting <> '' ORDER BY name LIMIT 1), '') AS target,
       EXISTS (SELECT FROM pillarbox.audit WHERE verb = 'recover' AND argument->>'timeline' = %(timeline)s::text) AS held

-- name: recovery_settle
-- Finishes locked recipients on hold as it is proven that they ended, with their archive rows.
WITH proven AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(results)s::text[], %(errors)s::text[], %(proofs)s::text[])
        AS p(id, result, error, proof)
), gone AS (
    DELETE FROM pillarbox.queue_hold q USING proven p WHERE q.id = p.id AND q.id = ANY (%(ids)s::bigint[])
    RETURNING q.*, p.result, p.error, p.proof
), archived AS (
    INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, senderip, serverid, saslusername, senderlocalpart,
                                   senderdomain, recipientlocalpart, recipientdomain, size, metadata, transportid, jobid, priority,
                                   retry_count, last_error, worker, msgid, subject)
    SELECT g.id, g.messages__id, g.actionid, now(), g.result, g.ts, g.senderip, g.serverid, g.saslusername, g.senderlocalpart, g.senderdomain,
           g.recipientlocalpart, g.recipientdomain, g.size, coalesce(g.metadata, '{}') || jsonb_build_object('_recovered', g.proof), g.transportid,
           g.jobid, g.priority, g.retry_count, g.error, 'recover', m.msgid, m.subject
      FROM gone g LEFT JOIN pillarbox.messages m ON m.id = g.messages__id
    RETURNING id
)
SELECT id, NULL AS partid FROM archived

-- name: recovery_take
-- Locks those of these recipients that are still on hold, by message too.
SELECT q.id FROM pillarbox.queue_hold q JOIN unnest(%(ids)s::bigint[], %(messages)s::uuid[]) AS r(id, message) ON r.id = q.id AND r.message = q.messages__id
 ORDER BY q.id
   FOR UPDATE OF q
