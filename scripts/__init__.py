"""scripts — the commands of operators

Owns: the command `pillarbox` and its verbs.
"""
