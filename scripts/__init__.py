"""scripts — what operators type

Owns: the command `pillarbox` and one file per verb.
Called by: people and cron. Nothing in the daemons imports it.
"""
