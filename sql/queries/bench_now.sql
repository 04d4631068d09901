-- What time it is by the server's clock, also within a transaction.
SELECT clock_timestamp() AS now
