"""sink — an SMTP server that takes mail and does what the recipient's address asks, for tests and demos."""
