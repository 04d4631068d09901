"""rates — limits on clients, counted over all processes."""
