-- Figures of the moment, for the console's first page.

-- name: now_destinations
-- Destinations whose mail has failed, among the `most` earliest of what was tried or parked before: how many wait, how many are
-- being sent, when the next is due, and what went wrong last; the most first.
SELECT recipientdomain::text AS domain, count(*) AS recipients, count(*) FILTER (WHERE lease_until > now()) AS sending, min(next_retry) AS next_retry,
       (array_agg(last_error ORDER BY last_retry DESC NULLS LAST))[1] AS last_error
  FROM (SELECT recipientdomain, lease_until, next_retry, last_error, last_retry FROM pillarbox.queue
         WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL ORDER BY next_retry, id LIMIT %(most)s::bigint) AS troubled
 GROUP BY 1
 ORDER BY 2 DESC, 1
 LIMIT %(limit)s::bigint

-- name: now_minutes
-- Attempts of the last hour by the minute, as far as `pillarbox analytics stream` has counted them.
SELECT minute, coalesce(sum(attempts) FILTER (WHERE outcome = 'delivered'), 0)::bigint AS delivered,
       coalesce(sum(attempts) FILTER (WHERE outcome = 'deferred'), 0)::bigint AS deferred,
       coalesce(sum(attempts) FILTER (WHERE outcome = 'failed'), 0)::bigint AS failed,
       coalesce(sum(attempts) FILTER (WHERE outcome = 'lease_expired'), 0)::bigint AS lease_expired
  FROM pillarbox.report_minutes
 WHERE minute > now() - interval '1 hour'
 GROUP BY minute
 ORDER BY minute

-- name: now_server
-- The version of PostgreSQL.
SELECT current_setting('server_version') AS version

-- name: now_patience
-- For this transaction: it writes nothing, and no statement takes longer.
SELECT set_config('transaction_read_only', 'on', true) AS looks, set_config('statement_timeout', %(milliseconds)s, true) AS patience
