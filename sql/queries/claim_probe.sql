-- Lets PostgreSQL itself read the worker's condition: an unknown column, a syntax error or a value of the wrong type shows
-- here, before anything is started.
SELECT FROM pillarbox.queue WHERE status = 'DELIVER' AND ({where}) LIMIT 0
