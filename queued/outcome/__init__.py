"""outcome — the meaning of a reply for the recipient, and the consequences; pure."""
