-- Says that this worker is alive and which rows it claims; returns when it first said so. Rows nobody has renewed for a
-- day are forgotten, so that crashes do not fill the table.
WITH forgotten AS (
    DELETE FROM pillarbox.workers WHERE seen < now() - interval '1 day' AND worker <> %(worker)s
)
INSERT INTO pillarbox.workers (worker, id, host, pid, where_condition, started, seen, beat, lease, poll)
VALUES (%(worker)s, %(id)s, %(host)s, %(pid)s, %(where_condition)s, coalesce(%(started)s::timestamptz, now()), now(), %(beat)s, %(lease)s,
        %(poll)s)
    ON CONFLICT (worker) DO UPDATE
   SET id = excluded.id, host = excluded.host, pid = excluded.pid, where_condition = excluded.where_condition,
       started = excluded.started, seen = excluded.seen, beat = excluded.beat, lease = excluded.lease, poll = excluded.poll
RETURNING started
