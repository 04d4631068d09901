-- Forgets what of notices and suppressions is past its time.
SELECT pillarbox.maintain_forget_notices(%(keep)s, %(batch)s)
