"""access — who asks: API keys, the address of a client, and what a caller may."""
