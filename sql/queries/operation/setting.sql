-- Settings that commands change: suspends, suppressions, schedules, webhooks, blocks, API keys, principals; kept as they were, and undone.

-- name: setting_changes
-- The rows of settings that a command changed, in the order of their keys, at most so many; of secrets only how many there are.
SELECT noun, key,
       before || CASE WHEN before ? 'secrets' THEN jsonb_build_object('secrets', jsonb_array_length(before->'secrets')) ELSE '{}' END AS before,
       after || CASE WHEN after ? 'secrets' THEN jsonb_build_object('secrets', jsonb_array_length(after->'secrets')) ELSE '{}' END AS after
  FROM pillarbox.audit_settings
 WHERE audit__id = %(id)s::bigint
 ORDER BY length(key), key
 LIMIT %(limit)s::bigint

-- name: setting_count
-- How many rows of settings a command changed.
SELECT count(*) AS changed FROM pillarbox.audit_settings WHERE audit__id = %(id)s::bigint

-- name: setting_left
-- What an undo has not changed back, at most so many keys, and how many there are. A schedule whose next time alone
-- was changed has nothing to be changed back; other settings have none of these columns.
SELECT s.key, count(*) OVER () AS every
  FROM pillarbox.audit_settings s
 WHERE s.audit__id = %(undoes)s::bigint
   AND NOT EXISTS (SELECT FROM pillarbox.audit_settings d
                    WHERE d.audit__id = %(id)s::bigint AND d.noun = s.noun AND d.key = s.key)
   AND s.before - '{next_at,last_at,last_message}'::text[] IS DISTINCT FROM s.after - '{next_at,last_at,last_message}'::text[]
 ORDER BY length(s.key), s.key
 LIMIT %(limit)s::bigint

-- name: setting_undo_blocks
-- Changes blocks of senders back where they are as a command left them.
SELECT pillarbox.sender_block_undo()

-- name: setting_undo_keys
-- Revokes the API keys that a command made.
UPDATE pillarbox.api_keys t SET revoked = now()
  FROM pillarbox.audit_settings s
 WHERE s.audit__id = %(undoes)s::bigint AND s.noun = 'api_keys' AND s.before IS NULL AND t.prefix = s.key AND t.revoked IS NULL

-- name: setting_undo_principals
-- Changes principals back where they are as a command left them; not passwords, nor keys, nor one that has keys since.
WITH kept AS MATERIALIZED (
    SELECT s.key, s.before, s.after FROM pillarbox.audit_settings s WHERE s.audit__id = %(undoes)s::bigint AND s.noun = 'principals'
), gone AS (
    DELETE FROM pillarbox.principals t USING kept k
     WHERE k.before IS NULL AND t.name = k.key AND t = jsonb_populate_record(t, k.after)
       AND NOT EXISTS (SELECT FROM pillarbox.api_keys a WHERE a.principal = t.name)
), changed AS (
    UPDATE pillarbox.principals t
       SET (roles, reviews, disabled, senders, messages, recipients, partitionid, transportid, quarantineid, changed)
         = (SELECT r.roles, r.reviews, r.disabled, r.senders, r.messages, r.recipients, r.partitionid, r.transportid, r.quarantineid, now()
              FROM jsonb_populate_record(NULL::pillarbox.principals, k.before) AS r)
      FROM kept k
     WHERE t.name = k.key AND t = jsonb_populate_record(t, k.after)
       AND k.before - '{password,changed}'::text[] <> k.after - '{password,changed}'::text[]
)
INSERT INTO pillarbox.principals (name, kind, roles, reviews, disabled, senders, messages, recipients, partitionid, transportid, quarantineid, made)
SELECT r.name, r.kind, r.roles, r.reviews, r.disabled, r.senders, r.messages, r.recipients, r.partitionid, r.transportid, r.quarantineid, r.made
  FROM kept k, jsonb_populate_record(NULL::pillarbox.principals, k.before) AS r
 WHERE k.after IS NULL
ON CONFLICT DO NOTHING

-- name: setting_undo_schedules
-- Changes schedules back where they are as a command left them; `next` has the next time of each, by id.
WITH kept AS MATERIALIZED (
    SELECT s.key, s.before, s.after, s.content FROM pillarbox.audit_settings s WHERE s.audit__id = %(undoes)s::bigint
), gone AS (
    DELETE FROM pillarbox.schedules t USING kept k
     WHERE k.before IS NULL AND t.id = k.key
       AND t = jsonb_populate_record(t, k.after - '{next_at,last_at,last_message}'::text[])
), changed AS (
    UPDATE pillarbox.schedules t
       SET (cron, timezone, sender, recipients, metadata, transportid, priority, smtputf8, enabled, made, error, next_at)
         = (SELECT r.cron, r.timezone, r.sender, r.recipients, r.metadata, r.transportid, r.priority, r.smtputf8, r.enabled, r.made,
                   r.error, (%(next)s::jsonb->>k.key)::timestamptz
              FROM jsonb_populate_record(NULL::pillarbox.schedules, k.before) AS r)
      FROM kept k
     WHERE k.before IS NOT NULL AND k.after IS NOT NULL AND t.id = k.key
       AND t = jsonb_populate_record(t, k.after - '{next_at,last_at,last_message}'::text[])
)
INSERT INTO pillarbox.schedules (id, cron, timezone, sender, recipients, content, metadata, transportid, priority, smtputf8, next_at,
                                 last_at, last_message, enabled, made, error)
SELECT r.id, r.cron, r.timezone, r.sender, r.recipients, k.content, r.metadata, r.transportid, r.priority, r.smtputf8,
       (%(next)s::jsonb->>k.key)::timestamptz, r.last_at, r.last_message, r.enabled, r.made, r.error
  FROM kept k, jsonb_populate_record(NULL::pillarbox.schedules, k.before) AS r
 WHERE k.after IS NULL
ON CONFLICT DO NOTHING

-- name: setting_undo_suppressions
-- Changes suppressions back where they are as a command left them.
WITH kept AS MATERIALIZED (
    SELECT s.key, s.before, s.after FROM pillarbox.audit_settings s WHERE s.audit__id = %(undoes)s::bigint
), gone AS (
    DELETE FROM pillarbox.suppressions t USING kept k
     WHERE k.before IS NULL AND t.target = k.key
       AND t = jsonb_populate_record(t, k.after - '{evidence,count}'::text[])
), changed AS (
    UPDATE pillarbox.suppressions t
       SET (reason, source, since, expires, active)
         = (SELECT r.reason, r.source, r.since, r.expires, r.active FROM jsonb_populate_record(NULL::pillarbox.suppressions, k.before) AS r)
      FROM kept k
     WHERE k.before IS NOT NULL AND k.after IS NOT NULL AND t.target = k.key
       AND t = jsonb_populate_record(t, k.after - '{evidence,count}'::text[])
)
INSERT INTO pillarbox.suppressions (target, reason, source, since, expires, evidence, count, active, erased)
SELECT r.target, r.reason, r.source, r.since, r.expires, r.evidence, r.count, r.active, r.erased
  FROM kept k, jsonb_populate_record(NULL::pillarbox.suppressions, k.before) AS r
 WHERE k.after IS NULL
ON CONFLICT DO NOTHING

-- name: setting_undo_suspends
-- Changes suspends back where they are as a command left them; which mail goes again.
WITH kept AS MATERIALIZED (
    SELECT s.key, s.before, s.after FROM pillarbox.audit_settings s WHERE s.audit__id = %(undoes)s::bigint
), gone AS (
    DELETE FROM pillarbox.suspends t USING kept k
     WHERE k.before IS NULL AND t.id = k.key::bigint AND t = jsonb_populate_record(t, k.after)
    RETURNING t.selection
), changed AS (
    UPDATE pillarbox.suspends t
       SET (selection, reason, who, made, expires)
         = (SELECT r.selection, r.reason, r.who, r.made, r.expires FROM jsonb_populate_record(NULL::pillarbox.suspends, k.before) AS r)
      FROM kept k
     WHERE k.before IS NOT NULL AND k.after IS NOT NULL AND t.id = k.key::bigint AND t = jsonb_populate_record(t, k.after)
), back AS (
    INSERT INTO pillarbox.suspends (id, selection, reason, who, made, expires) OVERRIDING SYSTEM VALUE
    SELECT r.id, r.selection, r.reason, r.who, r.made, r.expires
      FROM kept k, jsonb_populate_record(NULL::pillarbox.suspends, k.before) AS r
     WHERE k.after IS NULL
    ON CONFLICT DO NOTHING
)
SELECT selection FROM gone

-- name: setting_undo_webhooks
-- Changes endpoints back where they are as a command left them; which are there again.
WITH kept AS MATERIALIZED (
    SELECT s.key, s.before, s.after FROM pillarbox.audit_settings s WHERE s.audit__id = %(undoes)s::bigint
), gone AS (
    DELETE FROM pillarbox.webhooks t USING kept k
     WHERE k.before IS NULL AND t.name = k.key AND t = jsonb_populate_record(t, k.after)
), changed AS (
    UPDATE pillarbox.webhooks t
       SET (secrets, state, reason) = (SELECT r.secrets, r.state, r.reason FROM jsonb_populate_record(NULL::pillarbox.webhooks, k.before) AS r)
      FROM kept k
     WHERE k.before IS NOT NULL AND k.after IS NOT NULL AND t.name = k.key AND t = jsonb_populate_record(t, k.after)
)
INSERT INTO pillarbox.webhooks (name, url, events, condition, secrets, private, batch, origin, state, reason, who, made)
SELECT r.name, r.url, r.events, r.condition, r.secrets, r.private, r.batch, r.origin, r.state, r.reason, r.who, r.made
  FROM kept k, jsonb_populate_record(NULL::pillarbox.webhooks, k.before) AS r
 WHERE k.after IS NULL
ON CONFLICT DO NOTHING
RETURNING name
