"""replies — every reply of smtpd's own

Owns: the text, code and enhanced code of every reply, syntax and sequence errors included; Refused, which carries one.
Guarantees: the code is in the name and in the text (tests/unit/smtpd/test_replies.py). Our own trouble is 4xx without
    its cause.
See: RFC 5321 section 4.2, RFC 3463, RFC 5248.
"""

from __future__ import annotations

from typing import Final

R214_HELP: Final = "214 2.0.0 Commands: {commands}"  # RFC 5321 section 4.1.1.8
R220_GREETING: Final = "220 {hostname} {ident}"  # RFC 5321 section 4.2; a greeting has no enhanced code
R220_START_TLS: Final = "220 2.0.0 Ready to start TLS"  # RFC 3207 section 4
R221_BYE: Final = "221 2.0.0 Bye"  # RFC 5321 section 4.1.1.10
R221_NOT_SMTP: Final = "221 2.7.0 This is SMTP, goodbye"  # RFC 5321 section 3.8; as Postfix smtpd_forbidden_commands
R235_AUTHENTICATED: Final = "235 2.7.0 Authentication successful"  # RFC 4954 section 6
R250_OK: Final = "250 2.1.0 Ok"  # RFC 5321 section 4.1.1.2
R250_HELLO: Final = "250 {hostname}"  # RFC 5321 section 4.1.1.1; HELO knows no enhanced codes
R250_RECIPIENT_OK: Final = "250 2.1.5 Ok"  # RFC 5321 section 4.1.1.3
R250_QUEUED: Final = "250 2.0.0 Queued as {id}"  # RFC 5321 section 4.1.1.4; sent only after COMMIT
R250_NOOP: Final = "250 2.0.0 Ok"  # RFC 5321 section 4.1.1.9
R250_RESET: Final = "250 2.0.0 Reset"  # RFC 5321 section 4.1.1.5
R250_CHUNK: Final = "250 2.0.0 {size} octets received"  # RFC 3030 section 2
R252_CANNOT_VERIFY: Final = "252 2.5.0 Cannot verify the address, send mail and see"  # RFC 5321 section 3.5.3
R354_GO_ON: Final = "354 End data with <CR><LF>.<CR><LF>"  # RFC 5321 section 4.1.1.4
R421_TOO_BUSY: Final = "421 4.3.2 Too busy, try again later"  # RFC 5321 section 3.8
R421_TOO_MANY_CONNECTIONS: Final = "421 4.7.0 Too many connections lately, try again later"  # RFC 5321 section 3.8
R421_TOO_MANY_SESSIONS: Final = "421 4.7.0 Too many connections at once, try again later"  # RFC 5321 section 3.8
R421_STOPPING: Final = "421 4.3.2 Service shutting down, try again"  # RFC 5321 section 3.8
R421_IDLE: Final = "421 4.4.2 Timeout, closing the connection"  # RFC 5321 section 4.5.3.2
R421_ERRORS: Final = "421 4.7.0 Too many errors"  # RFC 5321 section 3.8
R421_TOO_MANY_FAILURES: Final = "421 4.7.0 Too many failed logins, try again later"  # RFC 5321 section 3.8
R421_USERS_UNAVAILABLE: Final = "421 4.7.0 Temporary authentication failure, try again later"  # RFC 5321 section 3.8
R421_FAULT: Final = "421 4.3.0 Local error in processing, try again"  # RFC 5321 section 3.8
R450_TOO_MANY_MESSAGES: Final = "450 4.7.1 Too many messages lately, try again later"  # RFC 5321 section 4.2.2
R450_TOO_MANY_RECIPIENTS: Final = "450 4.7.1 Too many recipients lately, try again later"  # RFC 5321 section 4.2.2
R451_CONTENT_DEFERRED: Final = "451 4.7.1 Try again later"  # RFC 5321 section 4.2.2; the content check says so
R451_LOCAL_ERROR: Final = "451 4.3.0 Local error in processing, try again"  # RFC 5321 section 4.2.2
R452_SPOOL_FULL: Final = "452 4.3.1 Too much mail waits to be committed, try again"  # RFC 5321 section 4.2.2
R452_NO_SPACE: Final = "452 4.3.1 Insufficient system storage, try again"  # RFC 5321 section 4.2.2
R452_TOO_MANY_RECIPIENTS: Final = "452 4.5.3 Too many recipients"  # RFC 5321 section 4.5.3.1.10
R452_NO_MEMORY: Final = "452 4.3.1 Too much mail is in transfer, try again"  # RFC 5321 section 4.2.2
R452_TOO_MANY_MESSAGES: Final = "452 4.5.3 Too many messages on this connection"  # RFC 9422 section 4.1
R454_NO_TLS: Final = "454 4.7.0 TLS is not available"  # RFC 3207 section 4
R454_AUTH_UNAVAILABLE: Final = "454 4.7.0 Temporary authentication failure"  # RFC 4954 section 6
R454_AUTH_BUSY: Final = "454 4.7.0 Too many logins at once, try again"  # RFC 4954 section 6
R454_TOO_MANY_FAILURES: Final = "454 4.7.0 Too many failed logins, try again later"  # RFC 4954 section 6
R500_BARE_NEWLINE: Final = "500 5.5.2 Bare CR or LF in command, lines end with CR LF"  # RFC 5321 section 2.3.8
R500_LINE_TOO_LONG: Final = "500 5.5.2 Line is too long"  # RFC 5321 section 4.5.3.1.9
R500_UNKNOWN_COMMAND: Final = "500 5.5.2 Command not recognized"  # RFC 5321 section 4.2.4
R501_BAD_HELO: Final = "501 5.5.4 Bad host name"  # RFC 5321 section 4.1.2
R501_BAD_SENDER: Final = "501 5.1.7 Bad sender address: {reason}"  # RFC 5321 section 4.1.2
R501_BAD_RECIPIENT: Final = "501 5.1.3 Bad recipient address: {reason}"  # RFC 5321 section 4.1.2
R501_PARAMETER_SYNTAX: Final = "501 5.5.4 Bad parameter"  # RFC 5321 section 4.1.2
R501_PARAMETER_TWICE: Final = "501 5.5.4 Parameter {keyword} is given twice"  # RFC 3461 section 4.5
R501_PARAMETER_VALUE: Final = "501 5.5.4 Bad value of parameter {keyword}: {reason}"  # RFC 3461 section 5.1
R501_HOLD_TWICE: Final = "501 5.5.4 HOLDFOR and HOLDUNTIL exclude each other"  # RFC 4865 section 4.2
R503_NEED_RCPT: Final = "503 5.5.1 Need RCPT command"  # RFC 5321 section 3.3
R530_REQUIRETLS: Final = "530 5.7.0 REQUIRETLS needs a connection under TLS"  # RFC 8689 section 2
R501_DATA_ARGUMENT: Final = "501 5.5.4 Syntax: DATA"  # RFC 5321 section 4.1.1.4
R501_SYNTAX: Final = "501 5.5.4 Syntax: {syntax}"  # RFC 5321 section 4.2.2
R501_XCLIENT: Final = "501 5.5.4 Bad XCLIENT attribute: {name}"  # RFC 5321 section 4.2.2
R501_BASE64: Final = "501 5.5.2 Cannot decode the response"  # RFC 4954 section 4
R501_CANCELLED: Final = "501 5.7.0 Authentication cancelled"  # RFC 4954 section 4
R502_NOT_IMPLEMENTED: Final = "502 5.5.1 Command not implemented"  # RFC 5321 section 4.2.4
R503_AFTER_BDAT: Final = "503 5.5.1 Not after BDAT"  # RFC 3030 section 2
R503_IN_TRANSACTION: Final = "503 5.5.1 A transaction is under way"  # RFC 5321 section 4.1.4
R503_NEED_BDAT: Final = "503 5.5.1 BODY=BINARYMIME needs BDAT"  # RFC 3030 section 3
R503_NEED_HELLO: Final = "503 5.5.1 Say HELO or EHLO first"  # RFC 5321 section 4.1.4
R503_NEED_MAIL: Final = "503 5.5.1 Need MAIL command"  # RFC 5321 section 4.1.4
R503_TLS_ACTIVE: Final = "503 5.5.1 TLS is already active"  # RFC 3207 section 4
R503_NEED_EHLO: Final = "503 5.5.1 Say EHLO first"  # RFC 4954 section 4
R503_AUTHENTICATED: Final = "503 5.5.1 Already authenticated"  # RFC 4954 section 4
R504_MECHANISM: Final = "504 5.5.4 Unrecognized authentication type"  # RFC 4954 section 4
R521_NO_CHUNKS: Final = "521 5.5.1 CHUNKING is not offered; closing the connection"  # RFC 3030 section 2, RFC 7504
R521_CHUNK_SIZE: Final = "521 5.5.4 Syntax: BDAT size [LAST]; closing the connection"  # RFC 3030 section 2, RFC 7504
R530_NEED_TLS: Final = "530 5.7.0 Must issue a STARTTLS command first"  # RFC 3207 section 4
R535_BAD_CREDENTIALS: Final = "535 5.7.8 Authentication credentials invalid"  # RFC 4954 section 6
R538_ENCRYPTION_REQUIRED: Final = "538 5.7.11 Encryption required for authentication"  # RFC 4954 section 6
R550_NO_DOMAIN: Final = "550 5.1.3 Recipient address has no domain"  # RFC 5321 section 4.1.1.3
R550_SOURCE_ROUTE: Final = "550 5.1.0 Source routes are not accepted"  # RFC 5321 appendix C
R550_HOLD: Final = "550 5.7.1 Future release is not permitted for this client"  # RFC 4865 section 4.2
R550_XCLIENT_LOGIN: Final = "550 5.7.0 XCLIENT names a user that may not send"  # RFC 5321 section 4.2.2
R550_XCLIENT: Final = "550 5.7.0 XCLIENT is not permitted for this client"  # RFC 5321 section 4.2.2
R550_SUPPRESSED: Final = "550 5.7.1 Recipient is on the suppression list"  # RFC 3463 section 3.8
R550_FROM: Final = "550 5.7.1 From field holds an address that is not yours"  # RFC 6409 section 6.1
R550_NO_FROM: Final = "550 5.7.1 From field is missing"  # RFC 6409 section 6.3
R550_SENDER: Final = "550 5.7.1 Sender or Resent field holds an address that is not yours"  # RFC 6409 section 6.1
R552_TOO_BIG: Final = "552 5.3.4 Message is larger than {limit} octets"  # RFC 1870 section 6.3
R552_HEADER_TOO_BIG: Final = "552 5.3.4 Header field is too large"  # RFC 3463 section 3.4
R552_WHOLE_HEADER_TOO_BIG: Final = "552 5.3.4 Header is larger than {limit} octets"  # RFC 3463 section 3.4
R552_TOO_MANY_HEADER_LINES: Final = "552 5.3.4 Header has more than {limit} lines"  # RFC 3463 section 3.4
R553_NEED_SMTPUTF8: Final = "553 5.6.7 A non-ASCII address needs SMTPUTF8"  # RFC 6531 section 3.5
R553_SENDER: Final = "553 5.7.1 Sender address is not yours"  # RFC 6409 section 6.1
R554_RELAY_DENIED: Final = "554 5.7.1 Relay access denied"  # RFC 5321 section 3.6.2
R554_TOO_MANY_HOPS: Final = "554 5.4.6 Too many hops"  # RFC 5321 section 6.3
R554_BARE_NEWLINE: Final = "554 5.6.0 Bare CR or LF in message, lines end with CR LF"  # RFC 5321 section 2.3.8
R554_NUL: Final = "554 5.6.0 NUL octet in message"  # RFC 5321 section 4.5.2
R554_EIGHTBIT_HEADER: Final = "554 5.6.7 Non-ASCII header needs SMTPUTF8"  # RFC 6531 section 3.5
R554_EIGHTBIT_BODY: Final = "554 5.6.3 Octets above 127 need BODY=8BITMIME"  # RFC 6152 section 3
R554_LONG_LINE: Final = "554 5.6.0 Line is longer than {limit} octets"  # RFC 5322 section 2.1.1
R554_END_OF_HEADER: Final = "554 5.6.0 Header does not end with an empty line"  # RFC 5322 section 2.1
R554_ADDRESS_LITERAL: Final = "554 5.7.1 Mail to address literals is not relayed"  # RFC 5321 section 4.1.3
R554_CONTENT_REFUSED: Final = "554 5.7.1 Message refused for its content"  # RFC 5321 section 4.2.2
R554_EARLY: Final = "554 5.5.1 Spoke before the greeting"  # RFC 5321 section 3.1
R554_PIPELINING: Final = "554 5.5.0 Improper pipelining: wait for the reply"  # RFC 2920 section 3.1
R554_PROXY: Final = "554 5.7.0 Bad PROXY header"  # RFC 5321 section 3.1
R555_PARAMETER_UNKNOWN: Final = "555 5.5.4 Parameter {keyword} is not offered here"  # RFC 5321 section 4.1.1.11


class Refused(Exception):
    """A parameter is refused; `reply` goes to the client."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.reply = reply
