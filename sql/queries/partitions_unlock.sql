-- Lets the next repartitioning begin.
SELECT pg_advisory_unlock(hashtext('pillarbox.partitions'))
