"""tls — the encryption of a conversation and the identity of the other side

Owns: the policies of the transport, DANE and MTA-STS, and the check of the finished handshake.
"""
