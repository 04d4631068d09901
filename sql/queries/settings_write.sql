-- Tells SQL what the configuration says: in how many partition ids domains hash.
UPDATE pillarbox.settings SET partitions = %(partitions)s WHERE partitions <> %(partitions)s
