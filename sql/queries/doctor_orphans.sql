-- Queue rows whose message has no body, among the `batch` oldest and the `batch` newest.
WITH sample AS MATERIALIZED (
    (SELECT id, messages__id FROM pillarbox.queue ORDER BY id LIMIT %(batch)s)
    UNION
    (SELECT id, messages__id FROM pillarbox.queue ORDER BY id DESC LIMIT %(batch)s)
)
SELECT count(*) AS looked, count(*) FILTER (WHERE m.id IS NULL) AS wrong,
       (array_agg(s.id ORDER BY s.id) FILTER (WHERE m.id IS NULL))[1:3] AS examples
  FROM sample s LEFT JOIN pillarbox.messages m ON m.id = s.messages__id
