-- Outcomes by step of the retry schedule.
SELECT retry_count AS step, count(*) AS attempts, count(*) FILTER (WHERE outcome = 'delivered') AS delivered,
       count(*) FILTER (WHERE outcome = 'deferred') AS deferred, count(*) FILTER (WHERE outcome = 'failed') AS failed,
       sum(count(*) FILTER (WHERE outcome = 'delivered')) OVER (ORDER BY retry_count) AS reached
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s
 GROUP BY retry_count ORDER BY retry_count
