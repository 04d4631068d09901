"""queue — `pillarbox queue`: shows what waits and why, and acts on it, one recipient or a million."""
