-- Dead letters of the last day by result, at most `batch` of them.
SELECT result, count(*) AS recipients
  FROM (SELECT result FROM pillarbox.archive
         WHERE finished > now() - interval '1 day' AND result NOT IN ('success', 'deleted', 'bounced') LIMIT %(batch)s) AS dead
 GROUP BY result
 ORDER BY result
