"""session — the state of one SMTP session, and all it may use."""
