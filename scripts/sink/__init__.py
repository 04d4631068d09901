"""sink — an SMTP server that behaves as the recipient's address asks, for tests and demos."""
