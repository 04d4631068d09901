-- Delivered mail by protocol, and by destination with what went in the clear.
SELECT CASE grouping(recipientdomain) WHEN 1 THEN 'encryption' ELSE 'in_the_clear' END AS section,
       coalesce(recipientdomain, class, '(unknown)') AS name,
       count(*) AS delivered, count(*) FILTER (WHERE tls = 'none') AS plain
  FROM (SELECT *, split_part(tls, ' ', 1) || CASE WHEN tls LIKE '%% verified' THEN ' verified' ELSE '' END AS class FROM pillarbox.attempts) AS a
 WHERE ts >= %(since)s AND ts < %(until)s AND outcome = 'delivered'
 GROUP BY GROUPING SETS ((class), (recipientdomain))
 ORDER BY section, plain DESC, delivered DESC
