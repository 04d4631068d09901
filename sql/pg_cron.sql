-- Maintenance inside the database, for those who have pg_cron (1.4 or newer): what a worker does once every
-- maintenance.interval, done by PostgreSQL itself, so that it goes on while no worker runs. Both at once do no harm: each
-- works in small batches and leaves alone what the other has locked.
--
-- Run it in Pillarbox's database after every `pillarbox migrate`, as the role that owns the queue:
--
--     psql --single-transaction --set ON_ERROR_STOP=1 --file sql/pg_cron.sql "$PILLARBOX_DATABASE_URI"
--
-- It may be run again at any time: a name that is scheduled already is scheduled anew. postgresql.conf must say
-- shared_preload_libraries = 'pg_cron' and cron.database_name = the name of this database. `SELECT * FROM cron.job` shows
-- what is scheduled, cron.job_run_details what became of it, cron.unschedule(jobname) ends one.
--
-- The figures are the defaults of queued.yaml's section maintenance; change them here when you change them there. Once a
-- minute is the shortest pg_cron before 1.5 can do, and enough: nothing here is on the way of mail that goes well.
-- A DO block commits each batch, so that no transaction is long.

CREATE EXTENSION IF NOT EXISTS pg_cron;

-- maintenance.poison
SELECT cron.schedule('pillarbox hold_poison', '* * * * *',
    $$DO $do$ BEGIN WHILE pillarbox.maintain_hold_poison(now(), 3, 1000) > 0 LOOP COMMIT; END LOOP; END $do$; $$);

SELECT cron.schedule('pillarbox finish', '* * * * *',
    $$DO $do$ BEGIN WHILE EXISTS (SELECT FROM pillarbox.maintain_finish(now(), 'pg_cron', 1000)) LOOP COMMIT; END LOOP; END $do$; $$);

-- maintenance.grace, maintenance.keep.deadletters
SELECT cron.schedule('pillarbox sweep', '* * * * *',
    $$DO $do$ BEGIN WHILE pillarbox.maintain_sweep(now(), '10m', '7d', 1000) > 0 LOOP COMMIT; END LOOP; END $do$; $$);

-- maintenance.overdue
SELECT cron.schedule('pillarbox renotify', '* * * * *', $$SELECT pillarbox.maintain_renotify(now(), '1m', 1000)$$);

-- maintenance.keep.idempotency
SELECT cron.schedule('pillarbox forget_keys', '* * * * *',
    $$DO $do$ BEGIN WHILE pillarbox.maintain_forget_keys(now(), '7d', 1000) > 0 LOOP COMMIT; END LOOP; END $do$; $$);

-- maintenance.ahead
SELECT cron.schedule('pillarbox history_create', '7 * * * *', $$SELECT pillarbox.history_create(now(), 7)$$);

-- maintenance.keep.history
SELECT cron.schedule('pillarbox history_drop', '17 * * * *', $$SELECT pillarbox.maintain_history_drop(now(), '30d')$$);

-- VACUUM cannot run in a function, nor beside another command. Autovacuum does most of it.
SELECT cron.schedule('pillarbox vacuum', '*/5 * * * *',
    $$VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) pillarbox.queue, pillarbox.messages$$);

-- pg_cron keeps a row for every run and forgets none by itself.
SELECT cron.schedule('pillarbox forget_runs', '27 3 * * *',
    $$DELETE FROM cron.job_run_details WHERE end_time < now() - interval '7 days'
        AND jobid IN (SELECT jobid FROM cron.job WHERE jobname LIKE 'pillarbox %')$$);
