"""commands — the command lines that we send, and the mail that we refuse to send at all

Owns: the text of MAIL and RCPT, the parsing of an EHLO reply, and refusals in the peer's place.
Guarantees: pure; no line built here holds CR, LF, NUL or a parameter that came out of an address.
Raises: ValueError for a host name of ours that cannot be sent.
See: RFC 5321 §4.1.1 and §4.1.2, RFC 1870 (SIZE), RFC 6152 (8BITMIME), RFC 6531 §3.2 and §3.4 (SMTPUTF8),
RFC 3461 §5.2.1 (DSN), RFC 6710 §4.1 (MT-PRIORITY), RFC 8689 §2 (REQUIRETLS), RFC 9422 §4 (LIMITS).
Bugs: content with octets above 127 is never converted to 7 bits for a peer without 8BITMIME (RFC 6152 §3 leaves
the choice): a rewrite would break its signatures, so it is refused, like mail that needs SMTPUTF8.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from queued.smtp.content import wire_size
from shared.how_many import how_many
from shared.mail import xtext
from shared.mail.smtp_reply import Reply
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from queued.smtp.transaction import Transaction

# White space or an angle bracket outside quotes would end the path and begin a parameter of its own.
_PATH = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s<>"\\])+')
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SIZE_DIGITS = 20  # RFC 1870 §4
_LIMIT_DIGITS = 6  # RFC 9422 §4.1

BAD_SENDER = Reply.make(501, "5.1.7", "sender address cannot be sent over SMTP")
BAD_RECIPIENT = Reply.make(553, "5.1.3", "recipient address cannot be sent over SMTP")
NEEDS_8BITMIME = Reply.make(550, "5.6.3", "message needs 8BITMIME, which the host does not offer")
NEEDS_REQUIRETLS = Reply.make(550, "5.7.30", "message needs REQUIRETLS, which the host does not offer")
NEEDS_SMTPUTF8 = Reply.make(550, "5.6.7", "message needs SMTPUTF8, which the host does not offer")
NOT_OFFERED = Reply.make(452, "4.5.3", "more recipients than the host takes in one transaction")


def ehlo_command(verb: str, hostname: str) -> bytes:
    """EHLO or HELO with our name (RFC 5321 §4.1.1.1)."""
    if not hostname or not hostname.isascii() or not hostname.isprintable() or " " in hostname:
        raise ValueError(f"host name {show(hostname)} cannot be sent over SMTP")
    return f"{verb} {hostname}\r\n".encode("ascii")


def read_extensions(reply: Reply) -> dict[str, str]:
    """Keyword in capitals to parameters, from an EHLO reply (RFC 5321 §4.1.1.1)."""
    extensions: dict[str, str] = {}
    for line in reply.lines[1:]:
        keyword, _, parameters = line.strip().partition(" ")
        if keyword:
            extensions[keyword.upper()] = parameters.strip()
    return extensions


def size_limit(extensions: Mapping[str, str]) -> int | None:
    """The largest message the peer announces, in octets; None when it announces no fixed limit."""
    digits = extensions.get("SIZE", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _SIZE_DIGITS):
        return None
    return int(digits) or None  # RFC 1870 §4: 0 means no fixed maximum


def session_limit(name: str, extensions: Mapping[str, str]) -> int | None:
    """A limit that the peer announces, such as MAILMAX (RFC 9422 §4); None if it announces none that can be read."""
    for parameter in extensions.get("LIMITS", "").split():
        key, _, digits = parameter.partition("=")
        if key.upper() == name and digits.isascii() and digits.isdigit() and len(digits) <= _LIMIT_DIGITS:
            return int(digits) or None
    return None


def within_limits(recipients: Sequence[str], askable: Sequence[int], extensions: Mapping[str, str]) -> tuple[int, ...]:
    """Those of `askable`, positions in `recipients`, that one transaction may have (RFC 9422 §4.2, §4.3)."""
    most_domains = session_limit("RCPTDOMAINMAX", extensions)
    if most_domains is not None:
        domains = {index: recipients[index].rpartition("@")[2].lower() for index in askable}
        first = set(list(dict.fromkeys(domains.values()))[:most_domains])
        askable = [index for index in askable if domains[index] in first]
    return tuple(askable[: session_limit("RCPTMAX", extensions)])


def mail_command(transaction: Transaction, extensions: Mapping[str, str]) -> bytes:
    """MAIL with those parameters the peer offered and the message calls for (RFC 5321 §4.1.1.2)."""
    line = f"MAIL FROM:<{transaction.sender}>"
    if "SIZE" in extensions:
        line += f" SIZE={wire_size(transaction.content, transaction.prefix)}"
    if "8BITMIME" in extensions and (transaction.body8bit or not transaction.content.isascii()):
        line += " BODY=8BITMIME"
    # Passed on whenever declared: an attached message may need it, and we do not look there.
    if transaction.smtputf8 and "SMTPUTF8" in extensions:
        line += " SMTPUTF8"
    if "DSN" in extensions:
        line += f" RET={transaction.ret}" if transaction.ret else ""  # RFC 3461 §4.3
        line += f" ENVID={xtext.encode(transaction.envid)}" if transaction.envid else ""  # RFC 3461 §4.4
    if transaction.priority and "MT-PRIORITY" in extensions:
        line += f" MT-PRIORITY={transaction.priority}"  # RFC 6710 §4.1
    if transaction.requiretls and "REQUIRETLS" in extensions:
        line += " REQUIRETLS"  # RFC 8689 §2
    return f"{line}\r\n".encode()


def rcpt_command(transaction: Transaction, index: int, extensions: Mapping[str, str]) -> bytes:
    """RCPT for the recipient at `index` (RFC 5321 §4.1.1.3), and what its submitter asked (RFC 3461 §5.2.1)."""
    line = f"RCPT TO:<{transaction.recipients[index]}>"
    asked = transaction.dsn[index] if transaction.dsn else None
    if asked is not None and "DSN" in extensions:
        line += f" NOTIFY={','.join(sorted(asked.notify))}" if asked.notify else ""
        line += f" ORCPT={_orcpt(*asked.orcpt)}" if asked.orcpt else ""
    return f"{line}\r\n".encode()


def _orcpt(kind: str, address: str) -> str:
    """RFC 3461 §4.2, and RFC 6533 §3 for addresses beyond ASCII: in ASCII, with any offers of the host."""
    return f"{kind};{xtext.encode_address(address) if kind == 'utf-8' else xtext.encode(address)}"


def refuse_message(transaction: Transaction, extensions: Mapping[str, str]) -> Reply | None:
    """A refusal for every recipient that needs no asking, as the reply MAIL would get; else None."""
    if transaction.sender and not _is_path(transaction.sender, smtputf8=transaction.smtputf8):
        return BAD_SENDER
    if transaction.smtputf8 and "SMTPUTF8" not in extensions and _needs_smtputf8(transaction):
        return NEEDS_SMTPUTF8
    if "8BITMIME" not in extensions and not transaction.content.isascii():
        return NEEDS_8BITMIME
    if transaction.tls_asked == "only" and "REQUIRETLS" not in extensions:
        return NEEDS_REQUIRETLS
    limit = size_limit(extensions)
    size = wire_size(transaction.content, transaction.prefix)
    if limit is not None and size > limit:
        return Reply.make(552, "5.3.4", f"message of {how_many(size, 'octet')}; the host takes at most {limit}")
    return None


def refuse_recipient(recipient: str, *, smtputf8: bool) -> Reply | None:
    """A refusal for an address that must not be written to the wire, as the reply to RCPT; else None."""
    return None if _is_path(recipient, smtputf8=smtputf8) else BAD_RECIPIENT


def _is_path(address: str, *, smtputf8: bool) -> bool:
    """Whether the address stays one path between angle brackets."""
    if _CONTROL.search(address) is not None or _PATH.fullmatch(address) is None:
        return False
    if address.isascii():
        return True
    # A lone surrogate has no UTF-8 form.
    return smtputf8 and address == address.encode("utf-8", "replace").decode("utf-8")


def _needs_smtputf8(transaction: Transaction) -> bool:
    """RFC 6531 §3.2: an address or the header is not ASCII; declaring it alone needs nothing."""
    if not (transaction.sender.isascii() and all(map(str.isascii, transaction.recipients))):
        return True
    end_of_header = transaction.content.find(b"\r\n\r\n")
    header = transaction.content if end_of_header < 0 else transaction.content[:end_of_header]
    return not header.isascii()
