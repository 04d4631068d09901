"""process — the supervisor, its children, their sockets, privileges, reloads and metrics."""
