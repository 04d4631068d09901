"""partitions — splits, merges and moves partitions while mail flows."""
