"""queued — delivers queued mail

Owns: the path claim → deliver → result, for the rows its WHERE selects.
"""
