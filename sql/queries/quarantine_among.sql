-- In which quarantines the held recipients lie that fit a condition.
SELECT q.metadata->>'_quarantineid' AS id, count(*) AS recipients
  FROM pillarbox.queue q
 WHERE {condition} AND q.status = 'HOLD'
 GROUP BY 1
 ORDER BY 1
