"""spool — the way into the queue: group commit, and whether the queue can take more."""
