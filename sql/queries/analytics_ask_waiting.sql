-- Percentiles of the time to deliver: of all, by destination and by transport.
SELECT CASE grouping(recipientdomain, transportid) WHEN 3 THEN 'queue_time' WHEN 1 THEN 'delivery_time' ELSE 'transport_time' END AS section,
       coalesce(recipientdomain, transportid, 'all') AS name, count(*) AS recipients,
       percentile_disc(ARRAY[0.5, 0.9, 0.99, 1]) WITHIN GROUP (ORDER BY extract(epoch FROM finished - ts)::float8) AS seconds
  FROM pillarbox.archive
 WHERE finished >= %(since)s AND finished < %(until)s AND finished >= ts AND result = 'success'
 GROUP BY GROUPING SETS ((), (recipientdomain), (transportid))
 ORDER BY section, recipients DESC, name
