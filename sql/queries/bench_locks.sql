-- How many locks there are at this moment.
SELECT count(*) AS locks FROM pg_locks
