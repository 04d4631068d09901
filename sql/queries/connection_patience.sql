-- Nobody's open transaction may hold up everything a worker does: what waits longer than this for a lock is tried again.
SET lock_timeout = '2s'
