-- Holds what made its worker lose the claim too often in a row.
SELECT pillarbox.maintain_hold_poison(%(poison)s, %(batch)s)
