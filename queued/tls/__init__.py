"""tls — whether a conversation is encrypted and who the other side must be

Owns: the policies of the transport, DANE and MTA-STS, and the check of what was negotiated.
"""
