"""config — reads, checks and explains the configuration; the sections that both files share."""
