-- The backend that answers; behind a pooler it is not the one that was announced at login.
SELECT pg_backend_pid() AS pid
