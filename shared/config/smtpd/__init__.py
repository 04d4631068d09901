"""smtpd — the models of smtpd.yaml, a section a file."""
