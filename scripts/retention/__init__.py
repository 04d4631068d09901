"""retention — `pillarbox retention`: deletes what has been held, or remembered, for long enough."""
