"""destinations — the share of each destination and host, and the deliveries that wait for it."""
