-- Commands that changed the queue, and the earlier state of recipients.

-- name: audit_add
-- Adds what a batch did to the audit row of its command, in the batch's own transaction; how many it changed.
SELECT pillarbox.audit_add(%(id)s::bigint, %(ids)s::bigint[], %(seen)s::bigint) AS changed

-- name: audit_begin
-- Notes that a command begins to act, and returns the number of its audit row.
SELECT pillarbox.audit_begin(%(operator)s, %(verb)s, %(condition)s, %(argument)s::jsonb, %(reason)s, %(undoes)s::bigint, %(wanted)s::bigint) AS id

-- name: audit_finish
-- Notes that a command came to its end, and that what it undid is undone.
SELECT pillarbox.audit_finish(%(id)s::bigint)

-- name: audit_list
-- Commands that changed the queue, the latest first; of those before one, to go on in a list.
SELECT id, ts, who, login, operator, verb, condition, argument, reason, undoes, wanted, done, skipped, finished, undone
  FROM pillarbox.audit
 WHERE (%(id)s::bigint IS NULL OR id = %(id)s::bigint) AND (%(before)s::bigint IS NULL OR id < %(before)s::bigint)
 ORDER BY id DESC
 LIMIT %(limit)s::bigint

-- name: audit_span
-- How many recipients a command changed, and the highest id of them.
SELECT count(*) AS recipients, coalesce(max(queue__id), 0) AS last FROM pillarbox.audit_rows WHERE audit__id = %(id)s::bigint AND changed
