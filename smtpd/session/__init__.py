"""session — the state of one SMTP session, and the parts it uses."""
