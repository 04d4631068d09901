"""mail — addresses, messages, replies and results as values; pure."""
