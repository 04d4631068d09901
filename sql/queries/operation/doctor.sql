-- The queries of `pillarbox doctor`.

-- name: doctor_bodies_span
-- The oldest and the newest message, between which a sample begins.
SELECT (SELECT id FROM pillarbox.messages ORDER BY id LIMIT 1) AS oldest, (SELECT id FROM pillarbox.messages ORDER BY id DESC LIMIT 1) AS newest

-- name: doctor_clock
-- The server's time.
SELECT clock_timestamp() AS at

-- name: doctor_condition_answers
-- What the planner leaves of a condition when it knows the partition id. {outputs} are the condition with one id each, of
-- which EXPLAIN writes what is left; nothing is run.
EXPLAIN (VERBOSE, FORMAT JSON) SELECT {outputs} FROM pg_temp.pillarbox_condition

-- name: doctor_condition_begin
-- Lets this one transaction make a temporary table, which goes with it.
SET TRANSACTION READ WRITE

-- name: doctor_condition_index
-- Has PostgreSQL itself judge a condition: that of an index may hold nothing but columns and immutable functions and
-- operators, and no subquery, aggregate or function that returns a set. Without parentheses around it, and at the end, it
-- is one expression or a syntax error.
CREATE INDEX ON pg_temp.pillarbox_condition (id) WHERE {where}

-- name: doctor_condition_table
-- An empty table with the columns of queue.
CREATE TEMPORARY TABLE pillarbox_condition (LIKE pillarbox.queue) ON COMMIT DROP

-- name: doctor_condition_text
-- The condition as PostgreSQL writes it: every operator in parentheses, every text with its type. A condition that is just
-- true leaves none.
SELECT coalesce(pg_get_expr(indpred, indrelid), 'true') AS text FROM pg_index WHERE indrelid = 'pg_temp.pillarbox_condition'::regclass

-- name: doctor_dead
-- Dead letters of the last day by result, at most `batch` of them.
SELECT result, count(*) AS recipients
  FROM (SELECT result FROM pillarbox.archive
         WHERE finished > now() - interval '1 day' AND result NOT IN ('success', 'deleted', 'bounced') LIMIT %(batch)s) AS dead
 GROUP BY result
 ORDER BY result

-- name: doctor_default
-- The partition ids in the default leaf, where mail without a leaf of its own goes, among its `batch` first rows.
SELECT metadata->>'_partid' AS partid, count(*) AS recipients
  FROM (SELECT metadata FROM pillarbox.queue_def_def LIMIT %(batch)s) AS rows
 GROUP BY 1
 ORDER BY 1

-- name: doctor_due
-- Due mail by partition id, among the `batch` earliest of each class of a claim: how many wait and for how long, and
-- how many a dead worker's claim has left behind for longer than `grace`.
SELECT partid, count(*) FILTER (WHERE free) AS waiting, now() - min(next_retry) FILTER (WHERE free) AS oldest,
       count(*) FILTER (WHERE lost) AS lost, now() - min(lease_until) FILTER (WHERE lost) AS since,
       (array_agg(DISTINCT worker) FILTER (WHERE lost))[1:3] AS workers
  FROM (SELECT metadata->>'_partid' AS partid, next_retry, lease_until, worker,
               lease_until IS NULL OR lease_until <= now() AS free, token IS NOT NULL AND lease_until < now() - %(grace)s AS lost
          FROM ((SELECT * FROM pillarbox.queue WHERE status = 'DELIVER' AND priority > 0 AND next_retry <= now()
                  ORDER BY next_retry, id LIMIT %(batch)s)
                UNION ALL
                (SELECT * FROM pillarbox.queue WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND next_retry <= now()
                  ORDER BY next_retry, id LIMIT %(batch)s)
                UNION ALL
                (SELECT * FROM pillarbox.queue WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL AND next_retry <= now()
                  ORDER BY next_retry, id LIMIT %(batch)s)
                UNION ALL
                (SELECT * FROM pillarbox.queue WHERE status = 'DELIVER' AND priority < 0 AND next_retry <= now()
                  ORDER BY next_retry, id LIMIT %(batch)s)) AS due) AS seen
 GROUP BY partid
 ORDER BY partid

-- name: doctor_flow
-- How long nothing was delivered, among the newest 200,000 attempts of a day (NULL: nothing in it); how long the oldest mail has
-- waited that is due or was tried, and how many recipients of how many domains, among the `batch` first of each that are found.
SELECT now() - (SELECT max(ts) FROM pillarbox.attempts
                 WHERE outcome = 'delivered' AND ts > now() - interval '1 day'
                   AND id > (SELECT last_value FROM pillarbox.attempts_id_seq) - 200000) AS idle,
       now() - min(ts) AS waited, count(*) AS recipients, count(DISTINCT recipientdomain) AS domains
  FROM ((SELECT ts, recipientdomain FROM pillarbox.queue
          WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND next_retry <= now() ORDER BY next_retry, id LIMIT %(batch)s)
        UNION ALL
        (SELECT ts, recipientdomain FROM pillarbox.queue
          WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL ORDER BY next_retry, id LIMIT %(batch)s)
        UNION ALL
        (SELECT ts, recipientdomain FROM pillarbox.queue
          WHERE status = 'DELIVER' AND priority > 0 AND next_retry <= now() ORDER BY next_retry, id LIMIT %(batch)s)
        UNION ALL
        (SELECT ts, recipientdomain FROM pillarbox.queue
          WHERE status = 'DELIVER' AND priority < 0 AND next_retry <= now() ORDER BY next_retry, id LIMIT %(batch)s)) AS waiting

-- name: doctor_history
-- Which of the days from today to `ahead` days on have no partition of attempts or archive.
SELECT history || '_' || to_char(day, 'YYYYMMDD') AS missing, day - (now() AT TIME ZONE 'UTC')::date AS ahead
  FROM unnest(ARRAY['attempts', 'archive']) AS history,
       (SELECT (now() AT TIME ZONE 'UTC')::date + n AS day FROM generate_series(0, %(ahead)s) AS n) AS days
 WHERE NOT EXISTS (SELECT FROM pg_inherits
                    WHERE inhparent = to_regclass('pillarbox.' || history)
                      AND inhrelid = to_regclass(format('pillarbox.%%s_%%s', history, to_char(day, 'YYYYMMDD'))))
 ORDER BY day, history

-- name: doctor_horizon
-- The sessions that keep vacuum from removing dead rows of this database, the oldest first: open transactions with a snapshot or a
-- number of their own, prepared ones, and standbys that report theirs.
SELECT what, who, age FROM (
    SELECT CASE WHEN backend_type = 'walsender' THEN 'standby' ELSE 'transaction' END AS what,
           format('pid %%s %%s %%s (%%s)', pid, usename, coalesce(nullif(application_name, ''), '-'), state) AS who,
           now() - coalesce(xact_start, backend_start) AS age
      FROM pg_stat_activity
     WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
       AND backend_type NOT IN ('autovacuum worker', 'autovacuum launcher') AND (datname IS NULL OR datname = current_database())
    UNION ALL
    SELECT 'prepared transaction', format('%%s of %%s', gid, owner), now() - prepared FROM pg_prepared_xacts
     WHERE database = current_database()
) AS holders
 WHERE age >= %(age)s
 ORDER BY age DESC LIMIT 10

-- name: doctor_leaves
-- Every table of the queue's tree: its bound, triggers, unique id, indexes and storage parameters, and how much of it is
-- dead. An index counts under its own name and that of each partitioned index it is part of.
SELECT c.relname::text AS name, t.isleaf AS leaf, coalesce(pg_get_expr(c.relpartbound, c.oid), '') AS bound,
       coalesce(c.reloptions, '{}') AS options,
       array(SELECT g.tgname::text FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgenabled IN ('O', 'A')) AS triggers,
       array(SELECT n.relname::text
               FROM pg_index i
              CROSS JOIN LATERAL (SELECT i.indexrelid AS oid UNION SELECT a.relid FROM pg_partition_ancestors(i.indexrelid) a) AS named
               JOIN pg_class n ON n.oid = named.oid
              WHERE i.indrelid = c.oid AND i.indisvalid) AS indexes,
       EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
                  AND a.attname = 'id') AS unique_id,
       coalesce(s.n_live_tup, 0) AS live, coalesce(s.n_dead_tup, 0) AS dead, pg_total_relation_size(c.oid) AS bytes
  FROM pg_partition_tree('pillarbox.queue') t JOIN pg_class c ON c.oid = t.relid
  LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
 ORDER BY t.level, c.relname

-- name: doctor_listeners
-- Sessions in a transaction for longest: if one of them listens, it keeps the queue of notifications from being emptied.
SELECT pid, coalesce(nullif(application_name, ''), usename::text, 'unknown') AS name, now() - xact_start AS age
  FROM pg_stat_activity
 WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()
 ORDER BY xact_start LIMIT 3

-- name: doctor_logins
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

-- name: doctor_orphans
-- Queue rows whose message has no body, among the `batch` oldest and the `batch` newest.
WITH sample AS MATERIALIZED (
    (SELECT id, messages__id FROM pillarbox.queue ORDER BY id LIMIT %(batch)s)
    UNION
    (SELECT id, messages__id FROM pillarbox.queue ORDER BY id DESC LIMIT %(batch)s)
)
SELECT count(*) AS looked, count(*) FILTER (WHERE m.id IS NULL) AS wrong,
       (array_agg(s.id ORDER BY s.id) FILTER (WHERE m.id IS NULL))[1:3] AS examples
  FROM sample s LEFT JOIN pillarbox.messages m ON m.id = s.messages__id

-- name: doctor_pruning
-- The plan for what a claim reads, by which one sees the leaves it opens.
EXPLAIN (FORMAT JSON)
SELECT id FROM pillarbox.queue
 WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND ({where}) AND next_retry <= now()
 ORDER BY next_retry, id LIMIT 1

-- name: doctor_refcounts
-- Messages whose refcount is not the number of their queue rows, in a sample: `batch` messages from each start, and how
-- many were looked at.
WITH sample AS MATERIALIZED (
    -- A body that is in neither table was never needed, and no sweep would find it; a young one may be at its first commit.
    SELECT DISTINCT m.id, coalesce(c.refcount, CASE WHEN r.ts IS NULL AND m.ts < now() - interval '1 hour' THEN -1 ELSE 0 END) AS refcount
      FROM unnest(%(starts)s::uuid[]) AS start,
           LATERAL (SELECT id, ts FROM pillarbox.messages WHERE id >= start ORDER BY id LIMIT %(batch)s) AS m
           LEFT JOIN pillarbox.refcounts c ON c.messages__id = m.id
           LEFT JOIN pillarbox.released r ON r.messages__id = m.id
), counted AS (
    SELECT s.id, s.refcount, (SELECT count(*) FROM pillarbox.queue q WHERE q.messages__id = s.id) AS rows FROM sample s
)
SELECT count(*) AS looked, count(*) FILTER (WHERE refcount <> rows) AS wrong,
       (array_agg(format('%%s says %%s has %%s', id, refcount, rows) ORDER BY id) FILTER (WHERE refcount <> rows))[1:3] AS examples
  FROM counted

-- name: doctor_server
-- Facts of the server as a whole: version, durability, whether sessions can write (by default; this one only looks),
-- connections, room for locks, the queue of notifications, and the versions of the library that sorts texts (NULL: those
-- never change their order).
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
       pg_is_in_recovery() AS standby,
       (SELECT reset_val = 'on' FROM pg_settings WHERE name = 'default_transaction_read_only') AS readonly,
       array(SELECT name || '=' || setting FROM pg_settings
              WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name) AS unsafe,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::integer AS connections,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer AS most,
       current_setting('max_locks_per_transaction')::bigint AS locks_each,
       current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer AS lockers,
       pg_notification_queue_usage() AS notifications,
       d.datname AS database, d.datcollversion AS sorted_by, pg_database_collation_actual_version(d.oid) AS sorts_by
  FROM pg_database d
 WHERE d.datname = current_database()

-- name: doctor_session
-- A session that only looks, bounded in time and in waiting, that finds functions only where the owner of our tables or
-- PostgreSQL itself has put them, and reads and writes conditions the standard way.
SELECT set_config('default_transaction_read_only', 'on', false) AS looks, set_config('statement_timeout', %(seconds)s || 's', false) AS bound,
       set_config('lock_timeout', '2s', false) AS waits, set_config('search_path', 'pg_catalog, pillarbox, pg_temp', false) AS finds,
       set_config('standard_conforming_strings', 'on', false) AS reads, set_config('quote_all_identifiers', 'off', false) AS writes

-- name: doctor_settings
-- In how many partition ids SQL hashes domains, and whom it lets review what.
SELECT partitions, reviewers FROM pillarbox.settings

-- name: doctor_shut
-- Mail that waits for a host which does not answer or has all it may have, or for DNS, among the `batch` earliest of what
-- was tried or parked before: what it waits for, how many recipients, and of how many domains; the most first.
SELECT gate, count(*) AS recipients, count(DISTINCT recipientdomain) AS domains
  FROM (SELECT recipientdomain, coalesce(substring(last_error FROM 'host [^ ]+'), 'DNS') AS gate
          FROM (SELECT recipientdomain, last_error FROM pillarbox.queue
                 WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL
                 ORDER BY next_retry, id LIMIT %(batch)s) AS retried
         WHERE last_error ~ '^waiting: (host |DNS does not answer|[0-9]+ (attempts? under way to host|questions? to DNS))') AS shut
 GROUP BY gate
 ORDER BY recipients DESC, gate
 LIMIT 10

-- name: doctor_slots
-- Replication slots: whose each is, whether a client reads it, and how much it holds back.
SELECT s.slot_name::text AS slot, s.slot_type AS kind, coalesce(s.database::text, '-') AS database, s.active,
       CASE WHEN a.pid IS NULL THEN 'no client' ELSE format('%s of %s', a.application_name, a.usename) END AS reader,
       greatest(age(s.xmin), age(s.catalog_xmin)) AS transactions, s.wal_status,
       CASE WHEN pg_is_in_recovery() THEN 0 ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0) END::bigint AS wal
  FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
 ORDER BY wal DESC

-- name: doctor_transports
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

-- name: doctor_vacuum
-- The tables of the queue that this role may not vacuum: those neither its own nor of its own database, nor, from PostgreSQL
-- 17 on, such as it may MAINTAIN. The same rule as in maintain_vacuum_wanted.
SELECT v.leaf
  FROM pillarbox.maintain_vacuum v
  JOIN pg_class c ON c.oid = to_regclass(format('pillarbox.%I', v.leaf))
  JOIN pg_database d ON d.datname = current_database()
 WHERE c.relkind = 'r' AND NOT pg_has_role(d.datdba, 'USAGE')
   AND NOT CASE WHEN current_setting('server_version_num')::integer >= 170000
                THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE pg_has_role(c.relowner, 'USAGE') END
 ORDER BY v.leaf

-- name: doctor_waiting
-- Which of these partition ids have mail to deliver, due or not; NULL is mail without one.
SELECT partid FROM unnest(%(partids)s::text[]) AS partid
 WHERE EXISTS (SELECT FROM pillarbox.queue q WHERE q.status = 'DELIVER' AND q.metadata->>'_partid' = partid)
    OR (partid IS NULL AND EXISTS (SELECT FROM pillarbox.queue q WHERE q.status = 'DELIVER' AND q.metadata->>'_partid' IS NULL))

-- name: inspect_partitions
-- The table of partitions: how many recipients wait, are being sent, were deferred or are held in each leaf.
SELECT tableoid::regclass::text AS leaf, coalesce(metadata->>'_partid', '') AS partid,
       count(*) FILTER (WHERE state IN ('ACTIVE', 'SCHEDULED')) AS ready, count(*) FILTER (WHERE state = 'SENDING') AS sending,
       count(*) FILTER (WHERE state = 'DEFER') AS deferred, count(*) FILTER (WHERE state = 'HOLD') AS held
  FROM (SELECT q.tableoid, q.metadata, CASE WHEN q.status <> 'DELIVER' THEN q.status::text WHEN q.lease_until > now() THEN 'SENDING'
                                            WHEN q.next_retry <= now() THEN 'ACTIVE' ELSE 'DEFER' END AS state
          FROM pillarbox.queue q) AS seen
 GROUP BY 1, 2
 ORDER BY 1, 2

-- name: inspect_results
-- How many recipients finished with each result.
SELECT result, count(*) AS recipients FROM pillarbox.archive GROUP BY result

-- name: inspect_workers
-- Which worker finished how many recipients, of which partitions.
SELECT worker, array_agg(DISTINCT coalesce(metadata->>'_partid', 'NULL')) AS partids, count(*) AS recipients
  FROM pillarbox.archive
 WHERE result = 'success'
 GROUP BY worker
 ORDER BY worker
