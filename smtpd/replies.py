"""replies — every reply smtpd sends of its own

Owns: the text, code and enhanced code of our replies; aiosmtpd's own (syntax errors, sequence errors) are its.
Called by: smtpd.session, smtpd.protocol, smtpd.receive.
Guarantees: the code is in the name and in the text (tests/unit/test_replies.py). Our own trouble is 4xx and says
    nothing about what it is.
See: RFC 5321 section 4.2, RFC 3463, RFC 5248.
"""

from __future__ import annotations

from typing import Final

R250_OK: Final = "250 2.1.0 Ok"  # RFC 5321 section 4.1.1.2
R250_HELLO: Final = "250 {hostname}"  # RFC 5321 section 4.1.1.1; HELO knows no enhanced codes
R250_RECIPIENT_OK: Final = "250 2.1.5 Ok"  # RFC 5321 section 4.1.1.3
R250_QUEUED: Final = "250 2.0.0 Queued as {id}"  # RFC 5321 section 4.1.1.4; sent only after COMMIT
R354_GO_ON: Final = "354 End data with <CR><LF>.<CR><LF>"  # RFC 5321 section 4.1.1.4
R421_STOPPING: Final = "421 4.3.2 Service shutting down, try again"  # RFC 5321 section 3.8
R451_LOCAL_ERROR: Final = "451 4.3.0 Local error in processing, try again"  # RFC 5321 section 4.2.2
R452_SPOOL_FULL: Final = "452 4.3.1 Too much mail waits to be committed, try again"  # RFC 5321 section 4.2.2
R452_TOO_MANY_RECIPIENTS: Final = "452 4.5.3 Too many recipients"  # RFC 5321 section 4.5.3.1.10
R501_BAD_HELO: Final = "501 5.5.4 Bad host name"  # RFC 5321 section 4.1.2
R501_BAD_SENDER: Final = "501 5.1.7 Bad sender address: {reason}"  # RFC 5321 section 4.1.2
R501_BAD_RECIPIENT: Final = "501 5.1.3 Bad recipient address: {reason}"  # RFC 5321 section 4.1.2
R503_NEED_RCPT: Final = "503 5.5.1 Need RCPT command"  # RFC 5321 section 3.3
R501_DATA_ARGUMENT: Final = "501 5.5.4 Syntax: DATA"  # RFC 5321 section 4.1.1.4
R550_NO_DOMAIN: Final = "550 5.1.3 Recipient address has no domain"  # RFC 5321 section 4.1.1.3
R552_TOO_BIG: Final = "552 5.3.4 Message is larger than {limit} octets"  # RFC 1870 section 6.3
R553_NEED_SMTPUTF8: Final = "553 5.6.7 A non-ASCII address needs SMTPUTF8"  # RFC 6531 section 3.5
R554_RELAY_DENIED: Final = "554 5.7.1 Relay access denied"  # RFC 5321 section 3.6.2
R554_TOO_MANY_HOPS: Final = "554 5.4.6 Too many hops"  # RFC 5321 section 6.3
R554_BARE_NEWLINE: Final = "554 5.6.0 Bare CR or LF in message, lines end with CR LF"  # RFC 5321 section 2.3.8
R554_NUL: Final = "554 5.6.0 NUL octet in message"  # RFC 5321 section 4.5.2
