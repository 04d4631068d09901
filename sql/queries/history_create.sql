-- Makes the coming days' partitions of attempts and archive.
SELECT pillarbox.history_create(%(ahead)s)
