"""smtp — the client's side of SMTP: connections, conversations, transactions

Owns: commands to a host and its replies, and the connections that are kept for the next message.
"""
