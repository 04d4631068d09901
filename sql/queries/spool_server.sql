-- Which server answers, and in which history: another timeline means that one was promoted, or restored, since.
SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS history
