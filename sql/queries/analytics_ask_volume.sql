-- Attempts by the hour.
SELECT date_trunc('hour', ts) AS hour, count(*) AS attempts
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s
 GROUP BY 1 ORDER BY 1
