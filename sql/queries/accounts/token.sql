-- Tokens, as collectors see them. {schema} is the name of the accounts' schema, quoted.

-- name: token_collect
-- Marks new tokens of accounts in the right state and returns what their mail needs: recovery first, and of each action those that expire first. What another collector has locked is left to it. The account is looked up for each token: a join would be planned for a tenth of all tokens. The time stands in a SELECT, so that it is not reckoned for each token.
WITH recovery AS MATERIALIZED (
    SELECT t.id FROM {schema}.tokens t
     WHERE t.action = 'password_recovery' AND t.collected_at IS NULL AND t.consumed_at IS NULL
       AND (SELECT a.status FROM {schema}.accounts a WHERE a.id = t.account) = 'active'
       AND t.expires_at > extract(epoch FROM now())::integer
     ORDER BY t.expires_at, t.id LIMIT %(most)s
       FOR NO KEY UPDATE OF t SKIP LOCKED
), activation AS MATERIALIZED (
    SELECT t.id FROM {schema}.tokens t
     WHERE t.action = 'activation' AND t.collected_at IS NULL AND t.consumed_at IS NULL
       AND (SELECT a.status FROM {schema}.accounts a WHERE a.id = t.account) = 'provisioned'
       AND t.expires_at > extract(epoch FROM now())::integer
     ORDER BY t.expires_at, t.id LIMIT %(most)s - (SELECT count(*) FROM recovery)
       FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE {schema}.tokens t SET collected_at = (SELECT extract(epoch FROM now())::integer)
  FROM {schema}.accounts a
 WHERE t.id = ANY (ARRAY(SELECT id FROM recovery UNION ALL SELECT id FROM activation)) AND a.id = t.account
RETURNING t.id, t.action::text AS action, t.secret, t.code, t.expires_at, t.created_at, a.email, a.login, a.language

-- name: token_waiting
-- How many tokens could be collected now, counted up to `most`. The account is looked up for each token, as in token_collect: PostgreSQL may join all accounts, also those whose tokens were collected long ago.
SELECT count(*) AS waiting FROM (
    SELECT FROM {schema}.tokens t
     WHERE t.collected_at IS NULL AND t.consumed_at IS NULL AND t.expires_at > extract(epoch FROM now())::integer
       AND (SELECT a.status FROM {schema}.accounts a WHERE a.id = t.account)
           = CASE t.action WHEN 'password_recovery' THEN 'active' ELSE 'provisioned' END::{schema}.account_status
     LIMIT %(most)s) AS waits

-- name: token_installation
-- What tells these accounts from those of another installation.
SELECT installation::text AS installation FROM {schema}.account_settings

-- name: token_elsewhere
-- Begins to queue mail in another database than that of the tokens: its COMMIT waits until mail of earlier batches, too, is where
-- it should be, for which it needs a record in the write-ahead log; and a warning that it is not is sent to us.
SELECT set_config('synchronous_commit', 'on', true) AS durable, set_config('client_min_messages', 'warning', true) AS warns,
       pg_logical_emit_message(true, 'pillarbox', 'collect') AS record

-- name: token_enqueue
-- Queues the mail of a batch, each with its key of idempotency.
SELECT pillarbox.enqueue_batch(%(submissions)s::jsonb)

-- name: tokens_forget
-- Forgets a portion of the tokens that expired longer ago than `age`; how many.
SELECT {schema}.tokens_forget(%(age)s, %(batch)s) AS forgotten

-- name: collect_listen
-- Hears of new tokens.
LISTEN {channel}

-- name: token_schema
-- The schema whose tokens this session means.
SELECT n.nspname AS schema FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('tokens')

-- name: collect_patience
-- Ends the transaction of a collector whose reader takes nothing, so that it keeps no lock and no old row.
SET idle_in_transaction_session_timeout = '60s'

-- name: tokens_by_action
-- How many tokens of each action could be collected now, counted up to `most`, and for how many seconds the first of them could have been.
SELECT action::text AS action, count(wait) AS waiting, coalesce(max(wait), 0)::integer AS oldest
  FROM unnest(enum_range(NULL::{schema}.token_action)) AS action
  LEFT JOIN LATERAL (
       SELECT greatest(0, extract(epoch FROM now())::integer - greatest(t.created_at, a.unsuspended_at)) AS wait
         FROM {schema}.tokens t JOIN {schema}.accounts a ON a.id = t.account AND a.status = {schema}.token_needs(t.action)
        WHERE t.action = action.action AND t.collected_at IS NULL AND t.consumed_at IS NULL
          AND t.expires_at > extract(epoch FROM now())::integer
        ORDER BY t.expires_at, t.id LIMIT %(most)s) AS waits ON true
 GROUP BY action ORDER BY action

-- name: token_position
-- How far collectors have come: those that are connected and those that listen, the last token that was collected, and the tokens of the last day that expired uncollected.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pillarbox collect' AND datname = current_database()) AS connected,
       (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pillarbox collect wakeup' AND datname = current_database()) AS listening,
       (SELECT t.id FROM {schema}.tokens t WHERE t.collected_at IS NOT NULL ORDER BY t.id DESC LIMIT 1) AS last,
       extract(epoch FROM now())::integer - (SELECT t.collected_at FROM {schema}.tokens t WHERE t.collected_at IS NOT NULL ORDER BY t.id DESC LIMIT 1) AS ago,
       (SELECT count(*) FROM (
            SELECT FROM {schema}.tokens t JOIN {schema}.accounts a ON a.id = t.account AND a.status = {schema}.token_needs(t.action)
             WHERE t.collected_at IS NULL AND t.consumed_at IS NULL AND t.action = ANY (enum_range(NULL::{schema}.token_action))
               AND t.expires_at BETWEEN extract(epoch FROM now() - INTERVAL '1 day')::integer AND extract(epoch FROM now())::integer
             LIMIT %(most)s) AS expired) AS expired
