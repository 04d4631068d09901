"""shared — the parts that both daemons use

Owns: configuration, messages and addresses as values, the doors to PostgreSQL, events, lifecycle.
"""
