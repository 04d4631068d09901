"""lake — history outside PostgreSQL as Apache Iceberg tables, which every engine reads."""
