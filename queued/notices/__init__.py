"""notices — what senders are told of their mail

Owns: which notices are owed, how they are composed, and that they are queued as any mail.
"""
