-- Waiting mail that a next hop did not take for want of a login of ours, by transport, among the `batch` oldest and the `batch` newest rows; `error` is one of the reasons.
WITH sample AS MATERIALIZED (
    (SELECT id, status, transportid, last_error FROM pillarbox.queue ORDER BY id LIMIT %(batch)s)
    UNION
    (SELECT id, status, transportid, last_error FROM pillarbox.queue ORDER BY id DESC LIMIT %(batch)s)
)
SELECT transportid AS transport, count(*) AS recipients, max(last_error) AS error
  FROM sample
 WHERE status = 'DELIVER' AND (last_error LIKE '%%cannot log in: %%' OR last_error ~ '(^|is left alone: )(530|534|535|538) ')
 GROUP BY transportid
 ORDER BY transportid
