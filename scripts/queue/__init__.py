"""queue — `pillarbox queue`: shows queued mail and why it waits, and acts on it, one recipient or a million."""
