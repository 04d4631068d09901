-- Every registered worker, and whether it is alive.
SELECT worker, id, host, pid, where_condition, started, seen, now() - seen AS silent, beat, lease, poll, live
  FROM pillarbox.workers_seen
 ORDER BY id, worker
