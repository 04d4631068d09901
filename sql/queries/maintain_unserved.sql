-- Notes mail that is overdue, `most` recipients of each leaf and partition, for every worker to withdraw what it serves; with
-- `recent`, what has been overdue for five minutes at most.
SELECT pillarbox.maintain_unserved(%(overdue)s::interval, %(most)s,
           CASE WHEN %(recent)s THEN now() - %(overdue)s::interval - interval '5 minutes' ELSE '-infinity' END)
