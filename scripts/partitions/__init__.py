"""partitions — `pillarbox partitions`: shows, splits, merges and moves partitions while mail flows."""
