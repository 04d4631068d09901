"""queued — delivers what is queued

Owns: the way claim → deliver → result, for the rows its WHERE selects.
"""
