"""spool — the entrance to the queue: group commit, and the checks that the queue can accept more."""
