-- In how many partition ids SQL hashes domains.
SELECT partitions FROM pillarbox.settings
