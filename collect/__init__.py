"""collect — the collector: new tokens of accounts become queued mail, or mailroom's lines."""
