"""access — the caller of a request: its API key or address, and its rights."""
