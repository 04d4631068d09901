-- Outcomes by destination, sender, transport and source address, each the most frequent first: one reading for all four.
SELECT CASE grouping(recipientdomain, senderdomain, transportid, source) WHEN 7 THEN 'destinations' WHEN 11 THEN 'senders'
            WHEN 13 THEN 'transports' ELSE 'sources' END AS section,
       coalesce(recipientdomain, senderdomain, transportid, source) AS name, count(*) AS attempts,
       count(*) FILTER (WHERE outcome = 'delivered') AS delivered, count(*) FILTER (WHERE outcome = 'deferred') AS deferred,
       count(*) FILTER (WHERE outcome = 'failed') AS failed, count(*) FILTER (WHERE outcome = 'lease_expired') AS lost,
       count(*) FILTER (WHERE outcome = 'delivered' AND retry_count = 1) AS at_first, count(*) FILTER (WHERE retry_count = 1) AS first
  FROM pillarbox.attempts
 WHERE ts >= %(since)s AND ts < %(until)s
 GROUP BY GROUPING SETS ((recipientdomain), (senderdomain), (transportid), (source))
 ORDER BY section, attempts DESC, name
