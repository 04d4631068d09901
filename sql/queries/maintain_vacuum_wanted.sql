-- The leaves with more dead rows than `dead`, the worst first.
SELECT leaf FROM pillarbox.maintain_vacuum WHERE dead >= %(dead)s ORDER BY dead DESC
