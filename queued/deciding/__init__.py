"""deciding — what an answer means for the recipient, and what follows

Owns: classification of replies, the rules of the operator, and the schedule of retries.
"""
