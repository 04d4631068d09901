-- Which daemons run, and what each worker selects.

-- name: daemon_beat
-- Says that this process is alive and what it has done; returns when it first said so.
SELECT pillarbox.daemon_beat(%(daemon)s, %(kind)s, %(id)s, %(version)s, %(host)s, %(pid)s::integer, %(started)s::timestamptz, %(beat)s,
                             %(accepted)s::bigint[], %(delivered)s::bigint[], %(deferred)s::bigint[], %(failed)s::bigint[],
                             %(destinations)s::text[], %(attempts)s::integer[], %(allowed)s::integer[], %(waiting)s::integer[]) AS started

-- name: daemon_leave
-- A process that stops takes itself off the register.
SELECT pillarbox.daemon_leave(%(daemon)s)

-- name: daemon_seen
-- Every process that is alive, and those that fell silent without another of their kind and id on that host having started
-- since; and what each has done.
SELECT daemon, kind, id, version, host, pid, started, seen, now() - seen AS silent, live, accepted, delivered, deferred, failed
  FROM pillarbox.daemons_seen d
 WHERE live OR NOT EXISTS (SELECT FROM pillarbox.daemons_seen later
                            WHERE (later.kind, later.id, later.host) = (d.kind, d.id, d.host) AND later.started > d.seen
                              AND later.daemon <> d.daemon)
 ORDER BY array_position(ARRAY['smtpd', 'httpd', 'collect', 'queued'], kind), id, daemon
 LIMIT 1000

-- name: daemon_destinations
-- Where living workers deliver: attempts under way and allowed now, deliveries that wait in memory, and workers to which the
-- destination does not answer; those with trouble or most in hand first.
SELECT busy.destination, sum(busy.attempts)::bigint AS attempts, sum(busy.allowed)::bigint AS allowed, sum(busy.waiting)::bigint AS waiting,
       count(*) AS workers, count(*) FILTER (WHERE busy.allowed = 0) AS dead
  FROM pillarbox.daemons_seen, unnest(destinations, attempts, allowed, waiting) AS busy(destination, attempts, allowed, waiting)
 WHERE live
 GROUP BY busy.destination
 ORDER BY 6 DESC, 4 DESC, 2 DESC, 1
 LIMIT %(limit)s::bigint

-- name: register_beat
-- Says that this worker is alive and which rows it claims; returns when it first said so. Rows that were not renewed for a
-- day are forgotten, so that crashes do not fill the table, and so are transports that no worker has had for 30 days. A beat
-- waits for no disk and no standby: one that a crash takes is followed by the next.
WITH forgotten AS (
    DELETE FROM pillarbox.workers WHERE seen < now() - interval '1 day' AND worker <> %(worker)s
), unused AS (
    DELETE FROM pillarbox.transports WHERE seen < now() - interval '30 days' AND id <> ALL (%(transports)s::text[])
)
INSERT INTO pillarbox.workers (worker, id, host, pid, where_condition, started, seen, beat, lease, poll)
VALUES (%(worker)s, %(id)s, %(host)s, %(pid)s, %(where_condition)s, coalesce(%(started)s::timestamptz, now()), now(), %(beat)s, %(lease)s,
        %(poll)s)
    ON CONFLICT (worker) DO UPDATE
   SET id = excluded.id, host = excluded.host, pid = excluded.pid, where_condition = excluded.where_condition,
       started = excluded.started, seen = excluded.seen, beat = excluded.beat, lease = excluded.lease, poll = excluded.poll
RETURNING started, set_config('synchronous_commit', 'off', true)

-- name: register_transports
-- Mail for these transports is taken from now on. They are written only where they were not within the hour.
INSERT INTO pillarbox.transports (id, seen)
SELECT t.id, now() FROM unnest(%(transports)s::text[]) AS t(id)
 WHERE NOT EXISTS (SELECT FROM pillarbox.transports k WHERE k.id = t.id AND k.seen > now() - interval '1 hour')
 ORDER BY t.id
    ON CONFLICT (id) DO UPDATE SET seen = excluded.seen

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
