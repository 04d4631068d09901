-- One repartitioning at a time; released when the session ends.
SELECT pg_advisory_lock(hashtext('pillarbox.partitions'))
