-- Waiting mail by a transport that is none of `known`, among the `batch` oldest and the `batch` newest rows.
WITH sample AS MATERIALIZED (
    (SELECT id, status, transportid FROM pillarbox.queue ORDER BY id LIMIT %(batch)s)
    UNION
    (SELECT id, status, transportid FROM pillarbox.queue ORDER BY id DESC LIMIT %(batch)s)
)
SELECT transportid AS transport, count(*) AS recipients
  FROM sample
 WHERE status IN ('DELIVER', 'HOLD') AND transportid <> ALL (%(known)s::text[])
 GROUP BY transportid
 ORDER BY transportid
