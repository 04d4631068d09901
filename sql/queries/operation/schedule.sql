-- Recurring mail: added, due, sent, paused.

-- name: schedule_add
-- Adds a schedule; no row when there is one by this id already.
INSERT INTO pillarbox.schedules (id, cron, timezone, sender, recipients, content, transportid, priority, smtputf8, next_at)
VALUES (%(id)s, %(cron)s, %(timezone)s, %(sender)s, %(recipients)s, %(content)s, %(transportid)s, %(priority)s, %(smtputf8)s,
        %(next_at)s)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: schedule_clock
-- The time by the server's clock, which decides when mail is due.
SELECT now() AS now

-- name: schedule_disable
-- Disables a schedule that cannot be sent, with the reason; whether it was still due with this occurrence.
SELECT pillarbox.schedule_disable(%(schedule)s, %(occurrence)s, %(reason)s) AS disabled

-- name: schedule_due
-- Schedules whose time has come, by id, at most `batch` after the one named; and the server's clock.
SELECT id, cron, timezone, next_at, coalesce(%(now)s::timestamptz, now()) AS now
  FROM pillarbox.schedules
 WHERE enabled AND next_at <= coalesce(%(now)s::timestamptz, now()) AND id > %(after)s
 ORDER BY id LIMIT %(batch)s

-- name: schedule_enable
-- Lets a schedule be sent from this occurrence on, whatever disabled it.
UPDATE pillarbox.schedules SET enabled = true, next_at = %(next_at)s, error = NULL WHERE id = %(id)s

-- name: schedule_list
-- Every schedule without its content, enabled ones first, in the order they come.
SELECT id, cron, timezone, sender, recipients, length(content) AS size, transportid AS transport, priority, next_at, last_at,
       last_message, enabled, made, error
  FROM pillarbox.schedules
 ORDER BY NOT enabled, next_at, id

-- name: schedule_next
-- Seconds until the earliest occurrence that is still to come; NULL when none is.
SELECT extract(epoch FROM min(next_at) - coalesce(%(now)s::timestamptz, now())) AS seconds
  FROM pillarbox.schedules
 WHERE enabled AND next_at > coalesce(%(now)s::timestamptz, now())

-- name: schedule_once
-- Queues one message that is sent no earlier than `deliver_at`; with a key that was used before, the earlier message.
SELECT pillarbox.enqueue(%(sender)s, %(recipients)s, %(content)s, idempotency_key => %(key)s, deliver_at => %(deliver_at)s,
                         priority => %(priority)s, transportid => %(transportid)s, jobid => %(jobid)s, smtputf8 => %(smtputf8)s) AS message

-- name: schedule_pause
-- Keeps a schedule from being sent until it is enabled.
UPDATE pillarbox.schedules SET enabled = false WHERE id = %(id)s

-- name: schedule_remove
-- Forgets a schedule.
DELETE FROM pillarbox.schedules WHERE id = %(id)s

-- name: schedule_send
-- Queues one occurrence and moves the schedule on; the message's id, or NULL when another session has done it or is at it.
SELECT pillarbox.schedule_send(%(schedule)s, %(occurrence)s, %(following)s) AS message
