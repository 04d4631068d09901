"""outcome — what a reply means for the recipient, and what follows; pure."""
