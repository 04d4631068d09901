"""observe — events, metrics, traces and health of a daemon."""
