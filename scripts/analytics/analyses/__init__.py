"""analyses — what history says: one small pure transformation a file, DataFrame in, DataFrame out

Owns: the list of what belongs here.
Guarantees: no transformation reads a file, asks a database, looks at the clock or runs anything; each says its columns.
    Spark's own functions only, no Python per row.
See: docs/reference/analyses.md, what each figure means.
"""
