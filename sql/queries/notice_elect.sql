-- Whether this transaction is the one that sends notices now; held until it ends, behind a pooler too.
SELECT pg_try_advisory_xact_lock(hashtext('pillarbox.notices'))
