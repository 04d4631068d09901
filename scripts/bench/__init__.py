"""bench — every benchmark: for the people who build Pillarbox, so it is not in the wheel."""
