-- Schedules whose time has come, by id, at most `batch` after the one named; and the server's clock.
SELECT id, cron, timezone, next_at, coalesce(%(now)s::timestamptz, now()) AS now
  FROM pillarbox.schedules
 WHERE enabled AND next_at <= coalesce(%(now)s::timestamptz, now()) AND id > %(after)s
 ORDER BY id LIMIT %(batch)s
