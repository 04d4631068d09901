-- Destinations that deferred mail for our pace: in how many hours, how much, and what they let through.
WITH hour AS (
    SELECT recipientdomain, date_trunc('hour', ts) AS hour, count(*) AS attempts, count(*) FILTER (WHERE outcome = 'delivered') AS delivered,
           count(*) FILTER (WHERE outcome = 'deferred' AND (reply_code = 421 OR reply_enhanced LIKE '4.7.%%'
               OR reply_text ~* '\mrate\M|rate.?limit|too (many|much|fast)|throttl|deferred due to|exceeded|unusual (rate|volume)')
               AND coalesce(reply_text, '') !~* 'gr[ae]y.?list') AS slowed
      FROM pillarbox.attempts
     WHERE ts >= %(since)s AND ts < %(until)s
     GROUP BY 1, 2
)
SELECT recipientdomain, count(*) FILTER (WHERE slowed >= 5 AND slowed >= 0.1 * attempts) AS slowed_hours, count(*) AS hours,
       sum(slowed) FILTER (WHERE slowed >= 5 AND slowed >= 0.1 * attempts) AS slowed,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY delivered) FILTER (WHERE slowed >= 5 AND slowed >= 0.1 * attempts) AS let_through
  FROM hour
 GROUP BY recipientdomain
HAVING count(*) FILTER (WHERE slowed >= 5 AND slowed >= 0.1 * attempts) > 0
 ORDER BY slowed DESC, recipientdomain LIMIT %(top)s
