"""server — the listening socket, its connections, and the octets of HTTP, with limits for every client."""
