-- Makes the days' partitions of attempts and archive from a day of the owner's choice on.
SELECT pillarbox.history_create(%(at)s::timestamptz, %(ahead)s)
