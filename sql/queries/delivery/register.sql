-- Which workers run, and what each selects.

-- name: register_beat
-- Says that this worker is alive and which rows it claims; returns when it first said so. Rows nobody has renewed for a
-- day are forgotten, so that crashes do not fill the table. Its transports are known from then on, written only where they
-- were not within the hour; those that no worker has had for 30 days are forgotten.
WITH forgotten AS (
    DELETE FROM pillarbox.workers WHERE seen < now() - interval '1 day' AND worker <> %(worker)s
), unused AS (
    DELETE FROM pillarbox.transports WHERE seen < now() - interval '30 days' AND id <> ALL (%(transports)s::text[])
), known AS (
    INSERT INTO pillarbox.transports (id, seen)
    SELECT t.id, now() FROM unnest(%(transports)s::text[]) AS t(id)
     WHERE NOT EXISTS (SELECT FROM pillarbox.transports k WHERE k.id = t.id AND k.seen > now() - interval '1 hour')
     ORDER BY t.id
        ON CONFLICT (id) DO UPDATE SET seen = excluded.seen
)
INSERT INTO pillarbox.workers (worker, id, host, pid, where_condition, started, seen, beat, lease, poll)
VALUES (%(worker)s, %(id)s, %(host)s, %(pid)s, %(where_condition)s, coalesce(%(started)s::timestamptz, now()), now(), %(beat)s, %(lease)s,
        %(poll)s)
    ON CONFLICT (worker) DO UPDATE
   SET id = excluded.id, host = excluded.host, pid = excluded.pid, where_condition = excluded.where_condition,
       started = excluded.started, seen = excluded.seen, beat = excluded.beat, lease = excluded.lease, poll = excluded.poll
RETURNING started

-- name: register_leave
-- A worker that stops takes itself off the register.
DELETE FROM pillarbox.workers WHERE worker = %(worker)s

-- name: register_seen
-- Every registered worker, and whether it is alive.
SELECT worker, id, host, pid, where_condition, started, seen, now() - seen AS silent, beat, lease, poll, live
  FROM pillarbox.workers_seen
 ORDER BY id, worker

-- name: register_serves
-- Withdraws from what maintenance takes for unserved all that this worker's condition selects. By id, so that only what stands
-- there is looked at; what another worker withdraws at this moment is passed over.
DELETE FROM pillarbox.unserved u
 WHERE u.queue__id IN (
       SELECT mine.queue__id FROM pillarbox.unserved mine
        WHERE mine.queue__id = ANY (ARRAY(SELECT id FROM pillarbox.queue
                                           WHERE status = 'DELIVER' AND ({where})
                                             AND id = ANY (ARRAY(SELECT queue__id FROM pillarbox.unserved))))
        ORDER BY mine.queue__id FOR NO KEY UPDATE SKIP LOCKED)
