-- Finishes what an operator set to DELETE or BOUNCE, and says how many with which result.
SELECT result, recipients FROM pillarbox.maintain_finish(coalesce(%(now)s::timestamptz, now()), %(worker)s, %(batch)s)
