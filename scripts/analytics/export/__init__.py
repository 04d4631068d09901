"""export — `pillarbox analytics export`: writes closed days of history to Parquet files, each exactly once."""
