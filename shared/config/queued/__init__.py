"""queued — the models of queued.yaml, a section a file."""
