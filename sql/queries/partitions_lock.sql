-- One repartitioning at a time; held until the transaction ends. A mode below ACCESS EXCLUSIVE, so that the transaction gets no
-- number, which would keep dead rows from vacuum.
LOCK TABLE pillarbox.repartition_lock IN SHARE UPDATE EXCLUSIVE MODE
