"""commands — the verbs of `pillarbox` that need no folder of their own, one module per verb."""
