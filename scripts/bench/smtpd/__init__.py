"""smtpd — measures acceptance, compared with Postfix."""
