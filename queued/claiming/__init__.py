"""claiming — which recipients this worker takes, and what it has in flight."""
