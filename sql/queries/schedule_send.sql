-- Queues one occurrence and moves the schedule on; the message's id, or NULL when another session has done it or is at it.
SELECT pillarbox.schedule_send(%(schedule)s, %(occurrence)s, %(following)s, coalesce(%(now)s::timestamptz, now())) AS message
