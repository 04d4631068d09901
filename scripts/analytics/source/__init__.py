"""source — attempts and archive as Spark data sources."""
