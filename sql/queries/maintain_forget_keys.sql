-- Forgets idempotency keys older than `keep`, at most `batch`, and says how many.
SELECT pillarbox.maintain_forget_keys(%(keep)s, %(batch)s)
