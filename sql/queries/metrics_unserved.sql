-- Mail that no living worker serves: what maintenance noted and no worker has withdrawn for so long that every one has had its
-- beat since. The partitions whose mail has been due longest, at most `series`.
SELECT leaf, partid, count(*) AS recipients, extract(epoch FROM now() - min(due)) AS overdue
  FROM pillarbox.unserved
 WHERE noted < now() - %(grace)s::interval
 GROUP BY leaf, partid
 ORDER BY min(due), leaf, partid LIMIT %(series)s
