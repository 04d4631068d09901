"""smtp — the client's side of SMTP: connections, conversations, transactions

Owns: what is said to a host and what it answers, and which connections are kept for the next message.
"""
