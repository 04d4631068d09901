-- The state of a connection: its settings, its server, its patience.

-- name: connection_backend
-- The backend that answers; behind a pooler it is not `announced`, the one that was announced at login. Where it is, settings
-- that a database or a role may have and that no statement of ours is made for are as PostgreSQL ships them: under another
-- isolation the sweep may not run, the driver reads times and spans in one style only, arrays of ours have NULL in them, and
-- definitions of leaves are compared as text. Figures are not rounded, and every partition is not opened for one row.
-- `jit` is off: plans without a sequential scan can have the cost at which PostgreSQL compiles, which takes longer than to run them.
-- No session is ended because nothing came for a while: daemons listen on theirs.
SELECT pg_backend_pid() AS pid,
       CASE WHEN pg_backend_pid() = %(announced)s
            THEN (SELECT count(set_config(name, value, false))
                    FROM (VALUES ('default_transaction_isolation', 'read committed'), ('standard_conforming_strings', 'on'),
                                 ('DateStyle', 'ISO'), ('IntervalStyle', 'postgres'), ('array_nulls', 'on'), ('jit', 'off'),
                                 ('idle_session_timeout', '0'), ('row_security', 'on'), ('enable_partition_pruning', 'on'),
                                 ('quote_all_identifiers', 'off'), ('extra_float_digits', '1'), ('transform_null_equals', 'off')
                         ) AS ours(name, value)) END AS settings

-- name: connection_patience
-- No open transaction may hold up all of a worker's work: a statement that waits longer than this for a lock is retried.
SET lock_timeout = '2s'

-- name: connection_read_whole_tables
-- Allows sequential scans until the transaction ends: by an index, a count of all the queue takes two to five times as long.
SET LOCAL enable_seqscan = on

-- name: connection_walk
-- Daemons walk indexes and never read a table from end to end. The driver prepares what they ask again and again, and
-- PostgreSQL keeps a prepared statement's plan: one made while a leaf was empty would read the million rows that came
-- since, with every claim, until somebody analyzes it. Behind a pooler nothing is prepared, so every plan is fresh.
-- Nor is any planned anew for the values it is given, as PostgreSQL would do with those over many partitions: to plan the
-- recording of a result takes longer than to record it.
SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan

-- name: connection_walk_in_order
-- A claim reads each class from its index in order, as far as there are places. Where statistics say that a leaf is empty, which
-- they mostly say of a queue that is emptied as it fills, PostgreSQL may collect all that is due in a bitmap and sort it instead:
-- of a backlog that came since, with every claim. What needs bitmaps, for its BRIN indexes, is a function that allows them.
SET enable_bitmapscan = off

-- name: list_begin
-- Begins the transaction of a policy list's query, which may only read.
BEGIN READ ONLY

-- name: lock_timeout
-- How long a statement of this transaction may wait for a lock, and so keep others waiting behind it.
SET LOCAL lock_timeout = {milliseconds}

-- name: server_timeline
-- Which server answers, and on which timeline: another one means that a standby was promoted, or a backup restored, since, and
-- that numbers which the one before gave may be given again. NULL from a server that is in recovery.
SELECT CASE WHEN NOT pg_is_in_recovery()
            THEN (SELECT system_identifier FROM pg_control_system())::text || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
       END AS timeline

-- name: settings_write
-- Tells SQL what the configuration says: in how many partition ids domains hash, who may decide in which quarantine, and
-- whether subjects are kept.
UPDATE pillarbox.settings SET partitions = %(partitions)s, reviewers = %(reviewers)s::jsonb, keepsubject = %(keepsubject)s
 WHERE (partitions, reviewers, keepsubject) IS DISTINCT FROM (%(partitions)s, %(reviewers)s::jsonb, %(keepsubject)s)
