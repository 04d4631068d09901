-- Whether this transaction is the one that sends notices now; held until it ends, behind a pooler too.
SELECT pillarbox.lock_try('notices')
