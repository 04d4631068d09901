-- The queries of `pillarbox status`.

-- name: status_accepted
-- Recipients accepted in the last 1, 5 and 15 minutes, among the `most` newest ids; queued or finished by now. more: the oldest
-- ids that are read belong to these minutes too, so there may be more.
SELECT count(*) FILTER (WHERE ts > now() - interval '1 minute') AS one, count(*) FILTER (WHERE ts > now() - interval '5 minutes') AS five,
       count(*) AS fifteen, coalesce(min(id) <= max(last_value) - %(most)s::bigint * 9 / 10, false) AS more
  FROM (SELECT id, ts FROM pillarbox.queue WHERE id > (SELECT last_value FROM pillarbox.queue_id_seq) - %(most)s::bigint
        UNION ALL
        SELECT id, ts FROM pillarbox.archive
         WHERE finished > now() - interval '15 minutes' AND id > (SELECT last_value FROM pillarbox.queue_id_seq) - %(most)s::bigint) AS newest,
       pillarbox.queue_id_seq
 WHERE ts > now() - interval '15 minutes'

-- name: status_states
-- Recipients by state and the oldest of each, among the `most` first that are found.
SELECT state, count(*) AS recipients, min(ts) AS oldest
  FROM (SELECT state, ts FROM pillarbox.queue_state LIMIT %(most)s) AS found
 GROUP BY state
 ORDER BY state

-- name: status_tried
-- Attempts in the last 1, 5 and 15 minutes by outcome, among the `most` newest. more: as with status_accepted.
SELECT outcome, count(*) FILTER (WHERE ts > now() - interval '1 minute') AS one,
       count(*) FILTER (WHERE ts > now() - interval '5 minutes') AS five, count(*) AS fifteen,
       min(min(id)) OVER () <= (SELECT last_value FROM pillarbox.attempts_id_seq) - %(most)s::bigint * 9 / 10 AS more
  FROM pillarbox.attempts
 WHERE ts > now() - interval '15 minutes' AND id > (SELECT last_value FROM pillarbox.attempts_id_seq) - %(most)s::bigint
 GROUP BY outcome
 ORDER BY outcome
