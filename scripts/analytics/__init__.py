"""analytics — `pillarbox analytics`: reads history with Spark, keeps it as Parquet, reports on it, and cleans it up."""
