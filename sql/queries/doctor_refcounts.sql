-- Messages whose refcount is not the number of their queue rows, in a sample: `batch` messages from each start, and how
-- many were looked at.
WITH sample AS MATERIALIZED (
    -- A body that is in neither table was never needed, and no sweep would find it; a young one may be at its first commit.
    SELECT DISTINCT m.id, coalesce(c.refcount, CASE WHEN r.ts IS NULL AND m.ts < now() - interval '1 hour' THEN -1 ELSE 0 END) AS refcount
      FROM unnest(%(starts)s::uuid[]) AS start,
           LATERAL (SELECT id, ts FROM pillarbox.messages WHERE id >= start ORDER BY id LIMIT %(batch)s) AS m
           LEFT JOIN pillarbox.refcounts c ON c.messages__id = m.id
           LEFT JOIN pillarbox.released r ON r.messages__id = m.id
), counted AS (
    SELECT s.id, s.refcount, (SELECT count(*) FROM pillarbox.queue q WHERE q.messages__id = s.id) AS rows FROM sample s
)
SELECT count(*) AS looked, count(*) FILTER (WHERE refcount <> rows) AS wrong,
       (array_agg(format('%%s says %%s has %%s', id, refcount, rows) ORDER BY id) FILTER (WHERE refcount <> rows))[1:3] AS examples
  FROM counted
