"""queued — the models of queued.yaml, one section per file."""
