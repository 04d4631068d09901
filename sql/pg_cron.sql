-- Maintenance inside the database, for those who have pg_cron (1.4 or newer): the steps named below, which a worker takes once
-- every maintenance.interval, are taken by PostgreSQL itself, so that they go on while no worker runs. Steps that are not named stay
-- the workers'. Both at once do no harm: each works in small batches and leaves alone what the other has locked.
--
-- Run it in Pillarbox's database after every `pillarbox migrate`, as the role that owns the queue. A superuser makes the extension
-- first, and gives that role USAGE on the schema cron:
--
--     psql --single-transaction --set ON_ERROR_STOP=1 --file sql/pg_cron.sql "$PILLARBOX_DATABASE_URI"
--
-- It may be run again at any time: a name that is scheduled already is scheduled again. postgresql.conf must say
-- shared_preload_libraries = 'pg_cron' and cron.database_name = the name of this database. `SELECT * FROM cron.job` shows
-- what is scheduled, cron.job_run_details what became of it, cron.unschedule(jobname) ends one.
--
-- The figures are the defaults of queued.yaml's section maintenance; change them here when you change them there. Once a
-- minute is the shortest pg_cron before 1.5 can do, and enough: nothing here is on the way of mail that goes well.
-- A DO block commits each batch, so that no transaction is long, and ends before its next run begins.

CREATE EXTENSION IF NOT EXISTS pg_cron;

-- maintenance.poison
SELECT cron.schedule('pillarbox hold_poison', '* * * * *',
    $$DO $do$ BEGIN WHILE pillarbox.maintain_hold_poison(3, 1000) > 0 LOOP
        COMMIT; EXIT WHEN clock_timestamp() > statement_timestamp() + '50s'; END LOOP; END $do$; $$);

SELECT cron.schedule('pillarbox finish', '* * * * *',
    $$DO $do$ BEGIN WHILE EXISTS (SELECT FROM pillarbox.maintain_finish('pg_cron', 1000)) LOOP
        COMMIT; EXIT WHEN clock_timestamp() > statement_timestamp() + '50s'; END LOOP; END $do$; $$);

-- maintenance.grace, maintenance.keep.deadletters
SELECT cron.schedule('pillarbox sweep', '* * * * *',
    $$DO $do$ DECLARE note record; since timestamptz := '-infinity'; BEGIN LOOP
        SELECT * INTO note FROM pillarbox.maintain_sweep_since('10m', '7d', 1000, since);
        COMMIT; EXIT WHEN note.looked = 0 OR note.swept = 0 AND note.reached = since OR clock_timestamp() > statement_timestamp() + '50s';
        since := note.reached; END LOOP; END $do$; $$);

-- maintenance.overdue
SELECT cron.schedule('pillarbox renotify', '* * * * *',
    $$DO $do$ DECLARE leaf text := ''; BEGIN WHILE leaf IS NOT NULL LOOP
        leaf := (SELECT reached FROM pillarbox.maintain_renotify_since('1m', 100, '-infinity', leaf, 16));
        COMMIT; EXIT WHEN clock_timestamp() > statement_timestamp() + '50s'; END LOOP; END $do$; $$);
SELECT cron.schedule('pillarbox unserved', '* * * * *',
    $$DO $do$ DECLARE leaf text := ''; BEGIN WHILE leaf IS NOT NULL LOOP
        leaf := (SELECT reached FROM pillarbox.maintain_unserved_since('1m', 10, '-infinity', leaf, 16));
        COMMIT; EXIT WHEN clock_timestamp() > statement_timestamp() + '50s'; END LOOP; END $do$; $$);

-- maintenance.keep.idempotency
SELECT cron.schedule('pillarbox forget_keys', '* * * * *',
    $$DO $do$ BEGIN WHILE pillarbox.maintain_forget_keys('1d', 1000) > 0 LOOP
        COMMIT; EXIT WHEN clock_timestamp() > statement_timestamp() + '50s'; END LOOP; END $do$; $$);

-- maintenance.keep.history
SELECT cron.schedule('pillarbox forget_notices', '* * * * *',
    $$DO $do$ BEGIN WHILE pillarbox.maintain_forget_notices('30d', 1000) > 0 LOOP
        COMMIT; EXIT WHEN clock_timestamp() > statement_timestamp() + '50s'; END LOOP; END $do$; $$);

-- maintenance.ahead
SELECT cron.schedule('pillarbox history_create', '7 * * * *', $$SELECT pillarbox.history_create(7)$$);

-- maintenance.keep.history, maintenance.keep.find
SELECT cron.schedule('pillarbox history_drop', '17 * * * *', $$SELECT pillarbox.maintain_history_drop('30d', '90d')$$);

-- VACUUM cannot run in a function, nor beside another command. Autovacuum does most of it.
SELECT cron.schedule('pillarbox vacuum', '*/5 * * * *',
    $$VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) pillarbox.queue, pillarbox.messages, pillarbox.refcounts, pillarbox.released$$);

-- pg_cron keeps a row for every run and forgets none by itself.
SELECT cron.schedule('pillarbox forget_runs', '27 3 * * *',
    $$DELETE FROM cron.job_run_details WHERE end_time < now() - interval '7 days'
        AND jobid IN (SELECT jobid FROM cron.job WHERE jobname LIKE 'pillarbox %')$$);
