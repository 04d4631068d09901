"""core — the queue by itself, beside pgmq and PgQueuer."""
