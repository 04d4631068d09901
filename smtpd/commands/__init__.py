"""commands — the SMTP commands, their parameters and content."""
