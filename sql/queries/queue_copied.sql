-- Those of these recipients that the same command has copied before it was cut off, or copies at this moment: its other runs
-- since the last one that came to its end.
SELECT DISTINCT r.queue__id AS id
  FROM pillarbox.audit mine
  JOIN pillarbox.audit other ON other.verb = mine.verb AND other.condition = mine.condition AND other.argument = mine.argument AND other.id <> mine.id
  JOIN pillarbox.audit_rows r ON r.audit__id = other.id AND r.changed AND r.queue__id = ANY (%(ids)s::bigint[])
  JOIN pillarbox.queue q ON q.id = r.queue__id AND q.messages__id = r.messages__id
 WHERE mine.id = %(audit)s::bigint AND (other.finished IS NULL OR other.finished > mine.ts)
   AND other.id > coalesce((SELECT max(ended.id) FROM pillarbox.audit ended
                             WHERE ended.verb = mine.verb AND ended.condition = mine.condition AND ended.argument = mine.argument
                               AND ended.finished <= mine.ts), 0)
