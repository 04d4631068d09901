-- The daily partitions of attempts and archive.

-- name: history_create
-- Makes the coming days' partitions of attempts and archive.
SELECT pillarbox.history_create(%(ahead)s)

-- name: history_create_from
-- Makes the days' partitions of attempts and archive from a day of the owner's choice on.
SELECT pillarbox.history_create(%(at)s::timestamptz, %(ahead)s)
