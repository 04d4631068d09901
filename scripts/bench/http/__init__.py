"""http — measures what a message costs by HTTP, compared with SMTP."""
