"""recover — the command for a queue that was restored from a backup."""
