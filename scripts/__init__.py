"""scripts — what operators type

Owns: the command `pillarbox` and one file per verb.
"""
