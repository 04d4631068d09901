"""smtpd — accepts mail over SMTP and spools it

Owns: the path session → policy → spool. 250 for a message is sent in one place, after COMMIT.
"""
