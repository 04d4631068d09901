"""up — what `pillarbox up` does beside running the daemons."""
