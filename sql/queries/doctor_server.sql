-- What the server as a whole says of itself: version, durability, connections, room for locks, the queue of notifications.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
       pg_is_in_recovery() AS standby,
       array(SELECT name || '=' || setting FROM pg_settings
              WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name) AS unsafe,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::integer AS connections,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer AS most,
       current_setting('max_locks_per_transaction')::bigint AS locks_each,
       current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer AS lockers,
       pg_notification_queue_usage() AS notifications
