-- Drops one day of history that was verified, unless it has other rows by now.
SELECT pillarbox.history_drop_if_counted(%(table)s, %(day)s, %(rows)s, %(keep)s) AS dropped
