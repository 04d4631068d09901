-- Collects bodies without recipients, at most `batch`, from the notes of `since` on; those of dead letters stay for `keep`.
-- Without `since` from the oldest note on, or, where that is not `full`, from those of an hour ago.
SELECT looked, swept, nullif(reached, '-infinity') AS reached
  FROM pillarbox.maintain_sweep_since(%(grace)s::interval, %(keep)s::interval, %(batch)s,
           coalesce(%(since)s::timestamptz, CASE WHEN %(full)s THEN '-infinity'
                                                 ELSE now() - %(grace)s::interval - interval '1 hour' END))
