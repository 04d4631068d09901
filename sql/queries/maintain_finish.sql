-- Finishes what an operator set to DELETE or BOUNCE, and says how many with which result.
SELECT result, recipients FROM pillarbox.maintain_finish(%(worker)s, %(batch)s)
