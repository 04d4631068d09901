-- Which server answers, and on which timeline: another one means that a standby was promoted, or a backup restored, since, and
-- that numbers which the one before gave may be given again. NULL from a server that is in recovery.
SELECT CASE WHEN NOT pg_is_in_recovery()
            THEN (SELECT system_identifier FROM pg_control_system())::text || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
       END AS timeline
