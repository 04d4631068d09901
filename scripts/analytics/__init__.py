"""analytics — `pillarbox analytics`: history read by Spark, kept as Parquet, reported on, and cleaned up."""
