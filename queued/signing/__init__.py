"""signing — DKIM and ARC for what leaves

Owns: which keys sign, the signatures, and the seal of what is forwarded.
Called by: queued.deliver, queued.attempts; queued.build.
"""
