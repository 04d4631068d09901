"""signing — DKIM and ARC for what leaves

Owns: which keys sign, the signatures, and the seal of what is forwarded.
"""
