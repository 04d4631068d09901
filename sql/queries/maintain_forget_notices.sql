-- Forgets what of notices and suppressions is past its time.
SELECT pillarbox.maintain_forget_notices(coalesce(%(now)s::timestamptz, now()), %(keep)s, %(batch)s)
