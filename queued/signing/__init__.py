"""signing — DKIM and ARC for outgoing mail

Owns: the choice of keys, the signatures, and the seal of forwarded mail.
"""
