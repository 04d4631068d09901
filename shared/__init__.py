"""shared — the words and doors both daemons use

Owns: configuration, messages and addresses as values, the doors to PostgreSQL, events, lifecycle.
"""
