"""users — the file of users that `pillarbox user` maintains

Owns: the models of that file and of its entries, and reading the file as a whole.
Guarantees: a file is read whole or not at all. Names and passwords are prepared by SASLprep; domains are in the one
    spelling of shared/mail/domain.py. No verifier is ever quoted in a message.
Raises: ConfigError with every problem found, one line each.
See: docs/how-to/send/submit-with-authentication.md; RFC 4013, RFC 5803.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import ValidationError

from shared.config.errors import explain
from shared.config.fields import Checked, Id, Section, setting, whole
from shared.config.smtpd.authentication import Argon2Hash
from shared.config.smtpd.policy_fields import QuarantineId
from shared.config.yaml_source import load_yaml
from shared.errors import ConfigError
from shared.mail.domain import DomainRefused, to_ascii
from shared.masking import show
from shared.security.saslprep import NotPrepared, prepared
from shared.security.scram_keys import ScramKeys

_DOMAIN = r"[\w-]+(\.[\w-]+)*"
_SENDER = re.compile(rf"(?P<local>[^\s@<>]+@)?(?P<domain>(\*\.)?{_DOMAIN})")
_MOST_PER_HOUR = 1_000_000_000
#: Octets; pillarbox.principals has the same limit.
LONGEST_NAME = 255


def read_name(value: object) -> str:
    """A user's or principal's name in its one spelling; a list of names has spaces between them. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a valid user name; allowed: text")  # noqa: TRY004 - pydantic wants ValueError
    allowed = f"up to {LONGEST_NAME} characters by RFC 4013, without spaces"
    try:
        name = prepared(value)
    except NotPrepared as error:
        raise ValueError(f"{show(value)} is not a valid user name: it {error}; allowed: {allowed}") from None
    if " " in name:
        raise ValueError(f"{show(value)} is not a valid user name: it has a space; allowed: {allowed}")
    if len(name.encode()) > LONGEST_NAME:
        raise ValueError(f"{show(value)} is not a valid user name: it is too long; allowed: {allowed}")
    return name


def read_sender(value: object) -> str:
    """One of a user's senders: an address, a domain, `*.domain`, or nothing for the null sender. Raises ValueError."""
    if value == "":
        return ""
    if isinstance(value, str):
        local, at, domain = value.rpartition("@")
        with suppress(DomainRefused):
            written = f"{local}{at}{to_ascii(domain)}"
            if (match := _SENDER.fullmatch(written)) and not (match["local"] and "*" in match["domain"]):
                return written
    allowed = 'user@example.com, example.com, *.example.com, or "" for the null sender'
    raise ValueError(f"{show(value)} is not a valid sender; allowed: {allowed}")


def _scram(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("the value is not a SCRAM key set; allowed: the text that `pillarbox user` writes")  # noqa: TRY004
    ScramKeys.read(value)
    return value


Name = Annotated[str, Checked(read_name, {"type": "string", "minLength": 1})]
SenderPattern = Annotated[str, Checked(read_sender, {"type": "string"})]
ScramText = Annotated[str, Checked(_scram, {"type": "string", "pattern": r"^SCRAM-SHA-256\$"})]
PerHour = Annotated[int, whole(1, _MOST_PER_HOUR)]


class UserEntry(Section):
    """One user."""

    argon2: Argon2Hash | None = setting(
        None, "The password's argon2 hash, for PLAIN and LOGIN.", unit="hash", absent="neither works", repr=False
    )
    scram: ScramText | None = setting(
        None, "The password's SCRAM keys, for SCRAM-SHA-256.", unit="keys", absent="it does not work", repr=False
    )
    disabled: bool = setting(
        False,
        "Whether logins are refused though the password is right.",
        unit="true or false",
    )
    senders: list[SenderPattern] = setting(
        [],
        'Envelope senders the user may use; "" is the null sender, none at all is any.',
        unit="addresses and domains",
    )
    messages: PerHour | None = setting(None, "Messages in an hour.", unit="messages", absent="no limit")
    recipients: PerHour | None = setting(None, "Recipients in an hour.", unit="recipients", absent="no limit")
    partition: Id | None = setting(
        None, "The partition of the user's mail.", unit="partition id", absent="as policy decides"
    )
    transport: Id | None = setting(
        None, "The transport of the user's mail.", unit="transport id", absent="as policy decides"
    )
    hold: QuarantineId | None = setting(
        None, "Holds the user's mail under this quarantine id.", unit="quarantine id", absent="not held"
    )


class UsersFile(Section):
    """The file as a whole."""

    users: dict[Name, UserEntry] = setting({}, "Every user by name.", unit="entry by name")


def make_entry(values: Mapping[str, object], kind: type[UserEntry] = UserEntry) -> UserEntry:
    """The entry with these values. Raises ConfigError naming the first key that is wrong."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        raise ConfigError(f"{first['loc'][0]}: {cause or first['msg']}") from None


def load_users(path: Path) -> dict[str, UserEntry]:
    """The users of the file at `path` by name. Raises ConfigError."""
    source = load_yaml(path, os.environ)
    try:
        return UsersFile.model_validate(source.values).users
    except ValidationError as error:
        raise ConfigError("\n".join(explain(source, UsersFile, error))) from None
