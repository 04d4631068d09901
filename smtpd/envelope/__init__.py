"""envelope — the client, its transaction, and the parameters of MAIL and RCPT."""
