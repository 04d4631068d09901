-- Seconds until the earliest occurrence that is still to come; NULL when none is.
SELECT extract(epoch FROM min(next_at) - coalesce(%(now)s::timestamptz, now())) AS seconds
  FROM pillarbox.schedules
 WHERE enabled AND next_at > coalesce(%(now)s::timestamptz, now())
