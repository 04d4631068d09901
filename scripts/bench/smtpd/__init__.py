"""smtpd — acceptance, beside Postfix."""
