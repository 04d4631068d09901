-- Wakes the workers of partitions where mail is overdue; with `recent`, where it has been for five minutes at most.
SELECT pillarbox.maintain_renotify_since(%(overdue)s::interval, %(batch)s,
           CASE WHEN %(recent)s THEN now() - %(overdue)s::interval - interval '5 minutes' ELSE '-infinity' END)
