"""bench — every benchmark, for developers of Pillarbox; not in the wheel."""
