"""session — one connection from its first octet to its last."""
