"""shared — the words and doors both daemons use

Owns: configuration, messages and addresses as values, the doors to PostgreSQL, events, lifecycle.
Called by: smtpd, queued and scripts. It imports none of them (tests/layout/test_imports.py).
"""
