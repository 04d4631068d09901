"""config — reads, checks and explains the configuration; what both files have in common."""
