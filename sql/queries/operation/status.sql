-- The queries of `pillarbox status`.

-- name: status_accepted
-- Recipients accepted in the last 1, 5 and 15 minutes, among the `most` newest ids; queued or finished by now.
SELECT count(*) FILTER (WHERE ts > now() - interval '1 minute') AS one, count(*) FILTER (WHERE ts > now() - interval '5 minutes') AS five,
       count(*) AS fifteen
  FROM (SELECT ts FROM pillarbox.queue WHERE id > (SELECT last_value FROM pillarbox.queue_id_seq) - %(most)s::bigint
        UNION ALL
        SELECT ts FROM pillarbox.archive
         WHERE finished > now() - interval '15 minutes' AND id > (SELECT last_value FROM pillarbox.queue_id_seq) - %(most)s::bigint) AS newest
 WHERE ts > now() - interval '15 minutes'

-- name: status_smtpd
-- Where smtpd has connections to this database: the client's address, NULL for this host, and since when.
SELECT host(client_addr) AS host, count(*) AS connections, min(backend_start) AS since
  FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'pillarbox smtpd'
 GROUP BY 1
 ORDER BY 1 NULLS FIRST

-- name: status_states
-- Recipients by state and the oldest of each, among the `most` first that are found.
SELECT state, count(*) AS recipients, min(ts) AS oldest
  FROM (SELECT state, ts FROM pillarbox.queue_state LIMIT %(most)s) AS found
 GROUP BY state
 ORDER BY state

-- name: status_tried
-- Attempts in the last 1, 5 and 15 minutes by outcome, among the `most` newest.
SELECT outcome, count(*) FILTER (WHERE ts > now() - interval '1 minute') AS one,
       count(*) FILTER (WHERE ts > now() - interval '5 minutes') AS five, count(*) AS fifteen
  FROM pillarbox.attempts
 WHERE ts > now() - interval '15 minutes' AND id > (SELECT last_value FROM pillarbox.attempts_id_seq) - %(most)s::bigint
 GROUP BY outcome
 ORDER BY outcome
