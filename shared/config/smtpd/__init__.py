"""smtpd — the models of smtpd.yaml, one section per file."""
