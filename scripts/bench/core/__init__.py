"""core — measures the queue without SMTP, compared with pgmq and PgQueuer."""
