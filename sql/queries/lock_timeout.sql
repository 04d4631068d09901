-- How long a statement of this transaction may wait for a lock, and so keep others waiting behind it.
SET LOCAL lock_timeout = {milliseconds}
