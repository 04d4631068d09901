-- Recipients that fit a condition, by the values of some columns: how many, how large, how old.
-- As text[]: an array of envelope_text is a type of this database alone, which a client gets as one string.
SELECT ARRAY[{columns}]::text[] AS value, count(*) AS recipients, count(DISTINCT q.messages__id) AS messages, coalesce(sum(q.size), 0)::bigint AS bytes,
       min(q.ts) AS oldest, min(q.next_retry) AS next_retry
  FROM pillarbox.queue_state q
 WHERE {condition}
 GROUP BY 1
 ORDER BY 2 DESC, 1
 LIMIT %(limit)s::bigint
