"""search — `pillarbox analytics search`: finds finished mail in the lake."""
