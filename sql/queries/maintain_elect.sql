-- Whether this session is the one that maintains now; held until the session ends or gives it up.
SELECT pg_try_advisory_lock(hashtext('pillarbox.maintain'))
