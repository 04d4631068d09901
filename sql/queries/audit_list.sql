-- What was done to the queue, the latest first.
SELECT id, ts, who, operator, verb, condition, argument, reason, undoes, wanted, done, skipped, finished, undone, proven
  FROM pillarbox.audit
 WHERE (%(id)s::bigint IS NULL OR id = %(id)s::bigint)
 ORDER BY id DESC
 LIMIT %(limit)s::bigint
