"""content — limits on the content of messages, in smtpd.yaml

Owns: the section `servers[].phases.data`: limits on content, the treatment of content that breaks the rules, and the
    header fields that we add.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter. MIME is not parsed, so
    nothing here can be made to recurse, and there is no limit on nesting.
See: https://www.postfix.org/postconf.5.html; https://haraka.github.io (max_header_lines)
"""

from typing import Annotated, Literal

from shared.config.fields import HEADER_NAME, Checked, MessageSize, Section, Size, header_name, setting, whole
from shared.masking import show


def _dropped(value: object) -> str:
    """The name of a field to remove, in lower case."""
    name = header_name(value).lower()
    if name == "received":
        raise ValueError(f"{show(value)} cannot be removed, because it shows mail loops; allowed: other fields")
    return name


DroppedField = Annotated[str, Checked(_dropped, {"type": "string", "pattern": f"^{HEADER_NAME}$"})]


class DataPhase(Section):
    """Limits on the content of a message, and what is added to it."""

    maxsize: MessageSize = setting(
        10_240_000, "The largest message to accept (Postfix message_size_limit).", unit="size in bytes"
    )
    maxhops: Annotated[int, whole(1, 1000)] = setting(
        50,
        "The most Received lines a message may carry before it is considered a loop (Postfix hopcount_limit).",
        unit="lines",
    )
    maxloops: Annotated[int, whole(1, 1000)] = setting(
        4,
        "The most Received lines that may name this server itself; a content filter that sends mail back adds one "
        "(Postal counts to four).",
        unit="lines",
    )
    maxheadersize: Size = setting(
        102_400, "The largest single header field (Postfix header_size_limit).", unit="size in bytes"
    )
    maxheader: Size = setting(
        1_048_576, "The largest header, all its fields together (Exim header_maxsize).", unit="size in bytes"
    )
    maxheaderlines: Annotated[int, whole(10, 1_000_000)] = setting(
        1000, "The most lines of header (Haraka max_header_lines).", unit="lines"
    )
    maxlinelength: Annotated[int, whole(78, 1_000_000)] | None = setting(
        None,
        "The longest line of content, without its end; RFC 5322 allows 998. Mail with longer lines is common, and "
        "delivery breaks them (`maxlinelength` of transports).",
        unit="octets",
        absent="any length",
    )
    barenewline: Literal["reject", "normalize"] = setting(
        "reject",
        "What happens to lines that do not end with CR LF, which allow SMTP smuggling: reject the message, or "
        "normalize them (Postfix smtpd_forbid_bare_newline).",
        unit="word",
    )
    eightbit: Literal["accept", "reject"] = setting(
        "accept",
        "What happens to octets above 127 that the client did not declare: in the body without BODY=8BITMIME, in the "
        "header without SMTPUTF8 (Postfix strict_7bit_headers, strict_8bitmime_body).",
        unit="word",
    )
    endofheader: Literal["accept", "fix", "reject"] = setting(
        "accept",
        "What happens to a message whose header is followed by a line that is neither empty nor a field, which others "
        "may read as part of the header: accept it unchanged, fix it by inserting an empty line, or reject it. A "
        "message that starts with a blank, which would continue a field of ours, is always fixed (Postfix "
        "non_empty_end_of_header_action).",
        unit="word",
    )
    addheaders: Literal["never", "authenticated", "always"] = setting(
        "authenticated",
        "For which clients a missing Date, Message-ID or From is added (RFC 6409 section 8; Postfix "
        "always_add_missing_headers).",
        unit="word",
    )
    dropheaders: list[DroppedField] = setting(
        ["bcc", "content-length", "resent-bcc", "return-path"],
        "Header fields that are removed, once policy has seen them (Postfix message_drop_headers).",
        unit="list of field names",
    )
    tracerecipient: Literal["show", "hide"] = setting(
        "show", "Whether Received names the recipient if there is only one, as Postfix does.", unit="word"
    )
    traceuser: Literal["show", "hide"] = setting(
        "hide",
        "Whether Received names the authenticated user (Postfix smtpd_sasl_authenticated_header).",
        unit="word",
    )
