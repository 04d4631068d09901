-- The time by the server's clock, which decides when mail is due.
SELECT now() AS now
