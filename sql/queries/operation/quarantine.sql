-- Held mail as reviewers see it and decide about it.

-- name: quarantine_among
-- In which quarantines the held recipients lie that fit a condition, and whether PostgreSQL lets us decide there.
SELECT q.metadata->>'_quarantineid' AS id, count(*) AS recipients, pillarbox.may_review(q.metadata->>'_quarantineid') AS may
  FROM pillarbox.queue q
 WHERE {condition} AND q.status = 'HOLD'
 GROUP BY 1
 ORDER BY 1

-- name: quarantine_block
-- Blocks the sender of a held recipient, or its domain; a row with what is blocked, NULL for the null sender.
SELECT target FROM pillarbox.sender_block(%(id)s::bigint, %(whole)s, %(reason)s, %(keep)s::interval)

-- name: quarantine_blocked
-- Senders that are blocked, by target, after one; `theirs` says that this person may end it.
SELECT b.target, b.reason, b.who, b.since, b.expires, pillarbox.is_operator() OR b.who = pillarbox.acting_for() AS theirs
  FROM pillarbox.blocked_senders b
 WHERE (b.expires IS NULL OR b.expires > now()) AND b.target > %(after)s
 ORDER BY b.target
 LIMIT %(limit)s::bigint

-- name: quarantine_decisions
-- What was decided last about each of these recipients, and by whom, wherever they are now.
WITH there AS (
    SELECT q.id, q.messages__id FROM pillarbox.queue q WHERE q.id = ANY (%(ids)s::bigint[])
    UNION ALL
    SELECT a.id, a.messages__id FROM pillarbox.archive a WHERE a.id = ANY (%(ids)s::bigint[])
)
SELECT DISTINCT ON (t.id) t.id, a.id AS audit, a.verb, a.who, a.ts, a.reason
  FROM there t
  JOIN pillarbox.audit_rows r ON r.messages__id = t.messages__id AND r.queue__id = t.id AND r.changed
  JOIN pillarbox.audit a ON a.id = r.audit__id
 ORDER BY t.id, a.id DESC

-- name: quarantine_digest_begin
-- Locks what is known of a quarantine's digest until the transaction ends; `due` says that the last one is of an earlier
-- period, `period` when this one began.
INSERT INTO pillarbox.digests AS d (quarantine) VALUES (%(quarantine)s)
    ON CONFLICT (quarantine) DO UPDATE SET quarantine = excluded.quarantine
RETURNING d.sent, now() AS now, date_bin(%(every)s::interval, now(), '2001-01-01 00:00:00+00') AS period,
          coalesce(date_bin(%(every)s::interval, d.sent, '2001-01-01 00:00:00+00') < date_bin(%(every)s::interval, now(), '2001-01-01 00:00:00+00'), true) AS due

-- name: quarantine_digest_forget
-- Deletes recipients that are held there no more, so that one that is held again is in a digest again.
DELETE FROM pillarbox.digest_rows r
 WHERE r.quarantine = %(quarantine)s
   AND NOT EXISTS (SELECT FROM pillarbox.queue q
                    WHERE q.id = r.queue__id AND q.status = 'HOLD' AND q.metadata->>'_quarantineid' = r.quarantine)

-- name: quarantine_digest_link
-- Makes a link by which a person decides about a held recipient.
INSERT INTO pillarbox.decision_links (digest, principal, queue__id, messages__id, expires)
SELECT %(digest)s, %(principal)s, q.id, q.messages__id, now() + %(keep)s::interval
  FROM pillarbox.queue q WHERE q.id = %(id)s::bigint AND q.status = 'HOLD'

-- name: quarantine_digest_linking
-- Whether we may make links for others to decide by.
SELECT pillarbox.is_operator() AS operator

-- name: quarantine_digest_people
-- Those of these names that are people who may decide about held mail.
SELECT p.name FROM pillarbox.principals p
 WHERE p.name = ANY (%(names)s::text[]) AND p.kind = 'person' AND NOT p.disabled
   AND (p.roles && '{operator,admin}' OR 'reviewer' = ANY (p.roles) AND (p.reviews IS NULL OR %(quarantine)s::text = ANY (p.reviews)))

-- name: quarantine_digest_rows
-- The latest of the recipients of this digest, with the beginning of their message.
SELECT q.id, q.ts AS received, q.size,
       CASE WHEN q.senderdomain IS NULL THEN '' ELSE q.senderlocalpart || '@' || q.senderdomain END AS sender,
       q.recipientlocalpart || '@' || q.recipientdomain AS recipient,
       coalesce(q.metadata->>'_holdreason', q.last_error) AS reason, substring(m.content FROM 1 FOR %(most)s::integer) AS beginning
  FROM pillarbox.digest_rows r
  JOIN pillarbox.queue q ON q.id = r.queue__id
  LEFT JOIN pillarbox.messages m ON m.id = q.messages__id
 WHERE r.quarantine = %(quarantine)s AND r.reported = now() AND q.status = 'HOLD'
 ORDER BY q.id DESC
 LIMIT %(limit)s::bigint

-- name: quarantine_digest_send
-- Spools a digest and notes that it was sent, in one transaction; with the key of a period that has one already, that one.
UPDATE pillarbox.digests
   SET sent = now(),
       messages__id = pillarbox.enqueue(%(sender)s, %(recipients)s, %(content)s::bytea, idempotency_key => %(key)s, jobid => 'quarantine-digest')
 WHERE quarantine = %(quarantine)s
RETURNING messages__id AS message

-- name: quarantine_digest_tell
-- Notes every held recipient that was in no digest as part of this one, and returns how many there are.
WITH reported AS (
    INSERT INTO pillarbox.digest_rows (quarantine, queue__id, reported)
    SELECT %(quarantine)s, q.id, now() FROM pillarbox.queue q
     WHERE q.status = 'HOLD' AND q.metadata->>'_quarantineid' = %(quarantine)s
        ON CONFLICT DO NOTHING
    RETURNING queue__id
)
SELECT count(*) AS recipients FROM reported

-- name: quarantine_list
-- The held mail of each quarantine: how many, how large, the oldest and the latest; whether PostgreSQL lets us decide there.
SELECT q.metadata->>'_quarantineid' AS id, count(*) AS recipients, count(DISTINCT q.messages__id) AS messages,
       coalesce(sum(q.size), 0)::bigint AS bytes, min(q.ts) AS oldest, max(q.ts) AS latest,
       pillarbox.may_review(q.metadata->>'_quarantineid') AS may
  FROM pillarbox.queue q
 WHERE q.status = 'HOLD'
 GROUP BY 1
 ORDER BY 2 DESC, 1

-- name: quarantine_login
-- The calling login, every role whose rights it has, whether it owns the queue, and whether it may spool mail.
SELECT current_user AS login,
       ARRAY(SELECT rolname::text FROM pg_roles WHERE pg_has_role(current_user, oid, 'USAGE')) AS roles,
       coalesce((SELECT pg_has_role(current_user, c.relowner, 'USAGE')
                   FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                  WHERE n.nspname = 'pillarbox' AND c.relname = 'queue'), false) AS operator,
       coalesce((SELECT bool_or(has_function_privilege(current_user, p.oid, 'EXECUTE'))
                   FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                  WHERE n.nspname = 'pillarbox' AND p.proname = 'enqueue'), false) AS spools

-- name: quarantine_mail
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

-- name: quarantine_others
-- Those of these quarantines in which PostgreSQL does not let us decide.
SELECT id FROM unnest(%(ids)s::text[]) AS id WHERE NOT pillarbox.may_review(id)

-- name: quarantine_piece
-- A piece of a message's content, so that a large one is never held as a whole.
SELECT substring(content FROM %(start)s::integer FOR %(most)s::integer) AS piece FROM pillarbox.messages WHERE id = %(message)s

-- name: quarantine_places
-- Where these recipients are: their state in the queue, or how and when they finished.
SELECT q.id, q.state::text AS state, NULL::timestamptz AS finished FROM pillarbox.queue_state q WHERE q.id = ANY (%(ids)s::bigint[])
UNION ALL
SELECT a.id, a.result::text, a.finished FROM pillarbox.archive a WHERE a.id = ANY (%(ids)s::bigint[])

-- name: quarantine_redirect
-- Releases locked recipients to other addresses, and deletes the held ones in the same step.
SELECT id, partid FROM pillarbox.queue_redirect(%(ids)s::bigint[], %(localparts)s::text[], %(domains)s::text[])

-- name: quarantine_unblock
-- Ends the block of a sender or a domain; a row says that there was one.
SELECT target FROM pillarbox.sender_unblock(%(target)s)
