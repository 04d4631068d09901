-- What each partition id costs: attempts, and the seconds they took.
SELECT partid, count(*) AS attempts, sum(date_part('epoch', duration)) FILTER (WHERE duration >= '0') AS seconds
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s
 GROUP BY partid ORDER BY seconds DESC NULLS LAST
