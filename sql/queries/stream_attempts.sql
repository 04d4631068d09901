-- Attempts with ids above `after` and up to `upto`, of these days, with what figures by the minute need.
--
-- An instant that is still to come (the clock was put back) is taken as now: it would end the minutes before it.
SELECT a.id, a.token, least(a.ts, clock_timestamp()) AS ts, a.outcome, date_part('epoch', a.duration) AS seconds
  FROM pillarbox.attempts a
 WHERE a.ts >= %(since)s::timestamptz AND a.id > %(after)s AND a.id <= %(upto)s
