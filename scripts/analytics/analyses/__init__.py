"""analyses — the analyses of history: one small pure transformation per file, DataFrame in, DataFrame out

Owns: the list of analyses.
Guarantees: no transformation reads a file or the clock, queries a database or runs anything; each names its columns.
    Spark's own functions only, no Python per row.
See: docs/reference/analyses.md, the meaning of each figure.
"""
