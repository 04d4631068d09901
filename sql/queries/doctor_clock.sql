-- The server's time.
SELECT clock_timestamp() AS at
