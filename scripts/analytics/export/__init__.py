"""export — `pillarbox analytics export`: closed days of history as Parquet, each exactly once."""
