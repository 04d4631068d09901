-- Collects bodies without recipients; those of dead letters stay for `keep`.
SELECT pillarbox.maintain_sweep(coalesce(%(now)s::timestamptz, now()), %(grace)s, %(keep)s, %(batch)s)
