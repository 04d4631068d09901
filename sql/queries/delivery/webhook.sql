-- Webhooks: which endpoints there are, how far each has come, and the events it has yet to get.

-- name: webhook_declare
-- Makes the endpoints that queued.yaml has what it says, and removes those that it has no more. Names that a command made are
-- taken over; an endpoint that was paused or disabled stays so until somebody enables it.
WITH declared AS (
    SELECT * FROM jsonb_to_recordset(%(endpoints)s::jsonb)
        AS d(name text, url text, events text[], condition text, secrets text[], private boolean, batch integer)
), removed AS (
    DELETE FROM pillarbox.webhooks w WHERE w.origin = 'queued.yaml' AND w.name NOT IN (SELECT d.name FROM declared d)
)
INSERT INTO pillarbox.webhooks AS w (name, url, events, condition, secrets, private, batch, origin)
SELECT d.name, d.url, d.events, d.condition, d.secrets, d.private, d.batch, 'queued.yaml' FROM declared d
ON CONFLICT (name) DO UPDATE
   SET url = excluded.url, events = excluded.events, condition = excluded.condition, secrets = excluded.secrets,
       private = excluded.private, batch = excluded.batch, origin = 'queued.yaml'
 WHERE (w.url, w.events, w.condition, w.secrets, w.private, w.batch, w.origin)
       IS DISTINCT FROM (excluded.url, excluded.events, excluded.condition, excluded.secrets, excluded.private, excluded.batch, excluded.origin)

-- name: webhook_elect
-- Takes or renews the lease of the worker that brings events to all endpoints.
SELECT pillarbox.lease_take('webhooks', %(worker)s, %(lease)s) AS elected, set_config('synchronous_commit', 'off', true)

-- name: webhook_resign
-- Gives the lease back.
SELECT pillarbox.lease_give('webhooks', %(worker)s), set_config('synchronous_commit', 'off', true)

-- name: webhook_enabled
-- The endpoints that get events, and the transaction that last noted how far each has come.
SELECT w.name, w.url, w.events, w.condition, w.secrets, w.private, w.batch, c.xact
  FROM pillarbox.webhooks w JOIN pillarbox.webhook_cursors c ON c.webhook = w.name
 WHERE w.state = 'enabled' ORDER BY w.name

-- name: webhook_position
-- How far an endpoint has come. `restored` says that its numbers are those of another server, from a dump. `server` tells servers
-- apart: after a failover, numbers of transactions that were lost are given again.
SELECT pg_postmaster_start_time() AS server, c.xact, c.snapshot::text AS snapshot, c.at, c.again, c.until, c.goal, c.tries, c.failing, c.due,
       c.xmin::text::bigint <> c.xact %% 4294967296 AS restored
  FROM pillarbox.webhook_cursors c WHERE c.webhook = %(name)s

-- name: webhook_restart
-- Begins again after a dump was restored: from now on by the numbers of this server, and before that, by their time, everything
-- that the endpoint may not have had. A transaction that was open for more than a day is not looked for.
UPDATE pillarbox.webhook_cursors c
   SET xact = pg_current_xact_id()::text::bigint, snapshot = pg_current_snapshot(), at = now(), goal = NULL,
       again = least(c.again, c.at - interval '1 day'), until = greatest(c.until, now())
 WHERE c.webhook = %(name)s AND c.xact = %(xact)s

-- name: webhook_next
-- The next snapshot of an endpoint, at most `span` transactions on; `last` when it is the present one. `server` as in webhook_position.
SELECT pg_postmaster_start_time() AS server, n.upto::text AS upto, clock_timestamp() AS at,
       pg_snapshot_xmax(n.upto) = pg_snapshot_xmax(pg_current_snapshot()) AS last
  FROM (SELECT pillarbox.webhook_next(%(after)s::pg_snapshot, %(span)s) AS upto) AS n

-- name: webhook_events
-- The events between two snapshots, or of a span of time, behind a place among them. By a clock that was fast, some of them may
-- have happened tomorrow. Where even `since` is in the future, the clock was put back: then they may have any time.
SELECT place, rank, recipient, id, address, event
  FROM pillarbox.webhook_events(%(kinds)s, %(after)s::pg_snapshot, %(upto)s::pg_snapshot,
                                CASE WHEN %(since)s::timestamptz <= now() THEN %(since)s ELSE '-infinity' END,
                                CASE WHEN %(since)s::timestamptz <= now() THEN coalesce(%(before)s::timestamptz, now() + interval '2 days')
                                     ELSE 'infinity' END,
                                %(place)s, %(rank)s, %(recipient)s, %(id)s, %(most)s)

-- name: webhook_advance
-- Notes how far an endpoint has come, if it is where we know it to be, on the server that we know; a row says that it was.
UPDATE pillarbox.webhook_cursors c
   SET xact = pg_current_xact_id()::text::bigint, snapshot = %(snapshot)s::pg_snapshot, at = %(at)s, again = %(again)s, until = %(until)s,
       goal = %(goal)s::jsonb, tries = 0, failing = NULL, due = NULL, error = NULL, sent = c.sent + %(sent)s,
       last_sent = CASE WHEN %(sent)s > 0 THEN %(now)s::timestamptz ELSE c.last_sent END
 WHERE c.webhook = %(name)s AND c.xact = %(xact)s AND pg_postmaster_start_time() = %(server)s
RETURNING c.xact

-- name: webhook_failed
-- Notes that an endpoint did not take a request, and when it is tried again; a row says that it is where we know it to be, as above.
UPDATE pillarbox.webhook_cursors c
   SET xact = pg_current_xact_id()::text::bigint, tries = c.tries + 1, failing = coalesce(c.failing, %(now)s), due = %(due)s, error = %(error)s
 WHERE c.webhook = %(name)s AND c.xact = %(xact)s AND pg_postmaster_start_time() = %(server)s
RETURNING c.xact, c.tries, c.failing

-- name: webhook_summarize
-- Has the newest pages of history in its indexes by transaction.
SELECT pillarbox.webhook_summarize()

-- name: webhook_stop
-- Pauses or disables an endpoint, with the reason.
UPDATE pillarbox.webhooks w SET state = %(state)s, reason = %(reason)s WHERE w.name = %(name)s AND w.state = 'enabled' RETURNING w.name
