-- Drops the oldest day of each history past keep-until.
SELECT pillarbox.maintain_history_drop(%(keep)s)
