-- Tells today's date at the server, in UTC.
SELECT (now() AT TIME ZONE 'UTC')::date AS today
