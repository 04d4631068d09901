-- Webhooks as operators see and change them.

-- name: webhook_add
-- Adds an endpoint; no row where there is one of that name already.
INSERT INTO pillarbox.webhooks (name, url, events, condition, secrets, private, batch)
VALUES (%(name)s, %(url)s, %(events)s, %(condition)s, %(secrets)s, %(private)s, %(batch)s)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: webhook_disable
-- Stops an endpoint, with the reason.
UPDATE pillarbox.webhooks w SET state = 'disabled', reason = %(reason)s WHERE w.name = %(name)s RETURNING w.name

-- name: webhook_enable
-- Lets an endpoint have events again, where it was; it is tried at once.
WITH enabled AS (
    UPDATE pillarbox.webhooks w SET state = 'enabled', reason = NULL WHERE w.name = %(name)s RETURNING w.name
)
UPDATE pillarbox.webhook_cursors c
   SET xact = pg_current_xact_id()::text::bigint, tries = 0, failing = NULL, due = NULL, error = NULL
  FROM enabled e WHERE c.webhook = e.name
RETURNING e.name

-- name: webhook_list
-- Endpoints without their secrets; all of them, or one.
SELECT w.name, w.url, w.events, w.condition, w.private, w.batch, w.origin, w.state, w.reason, w.who, w.made,
       cardinality(w.secrets) AS secrets, c.at, c.sent, c.last_sent, c.tries, c.failing, c.due, c.error, c.again, now() AS now
  FROM pillarbox.webhooks w JOIN pillarbox.webhook_cursors c ON c.webhook = w.name
 WHERE %(webhook)s::text IS NULL OR w.name = %(webhook)s
 ORDER BY w.name

-- name: webhook_remove
-- Forgets an endpoint and its position.
DELETE FROM pillarbox.webhooks w WHERE w.name = %(name)s RETURNING w.name

-- name: webhook_replay
-- Has the events of a span of time sent once more, before what is new.
UPDATE pillarbox.webhook_cursors c
   SET xact = pg_current_xact_id()::text::bigint, again = %(since)s::timestamptz, until = coalesce(%(until)s::timestamptz, now()),
       goal = NULL
 WHERE c.webhook = %(name)s
RETURNING c.until

-- name: webhook_rotate
-- Gives an endpoint these secrets.
UPDATE pillarbox.webhooks w SET secrets = %(secrets)s WHERE w.name = %(name)s RETURNING w.name

-- name: webhook_secrets
-- The secrets of an endpoint.
SELECT w.url, w.private, w.secrets FROM pillarbox.webhooks w WHERE w.name = %(name)s

-- name: webhook_skip
-- Has an endpoint go on with what happens from now on.
UPDATE pillarbox.webhook_cursors c
   SET xact = pg_current_xact_id()::text::bigint, snapshot = pg_current_snapshot(), at = now(), again = NULL, until = NULL, goal = NULL
 WHERE c.webhook = %(name)s
RETURNING c.webhook
