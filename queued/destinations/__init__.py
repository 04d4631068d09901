"""destinations — how much each destination and host is given, and what waits for it."""
