-- On whose behalf a command acts.

-- name: act_as
-- Acts for a principal until the transaction ends, in which no statement may take longer than so many milliseconds (NULL: as set).
SELECT pillarbox.act_as(%(principal)s),
       CASE WHEN %(milliseconds)s::text IS NOT NULL THEN set_config('statement_timeout', %(milliseconds)s::text, true) END

-- name: act_as_allowed
-- Whether this login may act for principals; not where the schema is missing, or older.
SELECT coalesce(bool_or(has_function_privilege(p.oid, 'EXECUTE')), false) AS allowed
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
 WHERE n.nspname = 'pillarbox' AND p.proname = 'act_as' AND has_schema_privilege(n.oid, 'USAGE')

-- name: acting_roles
-- What the principal may that we act for.
SELECT pillarbox.is_operator() AS operator, pillarbox.acting_has('{reviewer,operator,admin}') AS reviewer,
       pillarbox.acting_has('{sender}') AS sender

-- name: principal_find
-- What a principal is and may, without what belongs to passwords; no row when there is none.
SELECT * FROM pillarbox.principal_find(%(principal)s)

-- name: principal_known
-- Whether there is a principal of this name.
SELECT pillarbox.principal_known(%(principal)s) AS known

-- name: principal_add
-- Adds a principal; no row when the name is taken.
INSERT INTO pillarbox.principals (name, kind, roles, reviews, disabled, senders, messages, recipients, partitionid, transportid, quarantineid)
SELECT %(name)s, kind, roles, reviews, disabled, senders, messages, recipients, partitionid, transportid, quarantineid
  FROM jsonb_populate_record(NULL::pillarbox.principals, %(values)s::jsonb)
ON CONFLICT (name) DO NOTHING RETURNING name

-- name: principal_change
-- Gives a principal the values that are named, and keeps the others; no row when there is no such principal.
UPDATE pillarbox.principals p
   SET (roles, reviews, disabled, senders, messages, recipients, partitionid, transportid, quarantineid, changed)
     = (SELECT r.roles, r.reviews, r.disabled, r.senders, r.messages, r.recipients, r.partitionid, r.transportid, r.quarantineid, now()
          FROM jsonb_populate_record(p, %(values)s::jsonb) AS r)
 WHERE p.name = %(name)s
RETURNING p.name

-- name: principal_list
-- Every principal by name, with verifiers.
SELECT name, kind, roles, reviews, argon2, scram, disabled, senders, messages, recipients, partitionid, transportid, quarantineid
  FROM pillarbox.principals ORDER BY name

-- name: principal_remove
-- Removes a principal; no row when there was none.
DELETE FROM pillarbox.principals WHERE name = %(name)s RETURNING name

-- name: principals_listed
-- Every principal by name, without verifiers.
SELECT name, kind, roles, reviews, disabled FROM pillarbox.principals ORDER BY name
