-- Wakes the workers of partitions where mail is overdue.
SELECT pillarbox.maintain_renotify(coalesce(%(now)s::timestamptz, now()), %(overdue)s, %(batch)s)
