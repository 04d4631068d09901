-- Makes the coming days' partitions of attempts and archive.
SELECT pillarbox.history_create(coalesce(%(now)s::timestamptz, now()), %(ahead)s)
