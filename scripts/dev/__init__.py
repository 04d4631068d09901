"""dev — what builds, checks and documents Pillarbox: not in the wheel."""
