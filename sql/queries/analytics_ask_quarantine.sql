-- Held mail that was removed, and held mail that was released after all, by rule.
SELECT coalesce(metadata->>'_policyrule', metadata->>'_quarantineid', metadata->>'_holdreason') AS rule,
       count(*) FILTER (WHERE metadata ? '_quarantineid' AND result IN ('deleted', 'bounced', 'lock_expired')) AS removed,
       count(*) FILTER (WHERE NOT metadata ? '_quarantineid') AS released
  FROM pillarbox.archive
 WHERE finished >= %(since)s AND finished < %(until)s AND metadata ?| ARRAY['_quarantineid', '_holdreason']
 GROUP BY 1 ORDER BY 2 DESC
