-- Tells whether a day partition, named by its oid, is still part of history.
SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = %(leaf)s AND NOT inhdetachpending) AS there
