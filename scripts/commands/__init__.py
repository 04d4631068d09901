"""commands — the verbs of `pillarbox` that need no room of their own, one module a verb."""
