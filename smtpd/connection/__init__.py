"""connection — sockets, octets, lines and TLS: one connection from its opening to its end."""
