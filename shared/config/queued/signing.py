"""signing — the mail that is signed, and the keys for it

Owns: the section `signing` of queued.yaml.
Guarantees: ids are unique, and selectors within a rule; domains are in the spelling of DNS; times
    carry a zone; a key never ends before it begins. Whether a key's file can be read is not checked here: queued checks
    it when it starts.
See: RFC 6376 section 3.5 (the tags d= and s=) and section 3.1 (selectors); OpenDKIM's SigningTable and KeyTable
"""

from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from shared.config.fields import (
    Checked,
    FilePath,
    Id,
    MisplacedError,
    Section,
    Size,
    domain_matching,
    matching,
    quotes_hint,
    required,
    setting,
    unique_ids,
)
from shared.masking import show

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = rf"{_LABEL}(\.{_LABEL})*"
# The tag d=… must fit on one line of the signature: there is no folding within it (RFC 6376 section 3.5).
_LONGEST = 64

_read_signed = domain_matching(
    rf"\*|(?=.{{1,{_LONGEST}}}$)(\*\.)?{_NAME}",
    f"a domain such as example.com, *.example.com for those below it, or *; at most {_LONGEST} characters as A-labels",
).read
_read_domain = domain_matching(
    rf"(?=.{{1,{_LONGEST}}}$){_NAME}", f"a domain such as example.com; at most {_LONGEST} characters as A-labels"
).read
_SELECTOR = matching(rf"(?=.{{1,63}}$){_NAME}", "1 to 63 letters, digits, hyphens and underscores; dots between them")
read_selector = _SELECTOR.read


def read_domain(value: object) -> str:
    """A domain that signs, in lower case; ValueError for anything else."""
    return str(_read_domain(value))


def _instant(value: object) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"{show(value)} is not a time; allowed: a date and time with a zone such as 2026-12-24T18:00:00Z"
            ) from None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    raise ValueError(
        f"{show(value)} says no zone; allowed: a date and time with a zone such as 2026-12-24T18:00:00Z"
        f"{quotes_hint(value)}"
    )


ServerName = Annotated[
    str, matching(rf"(?=.{{1,255}}$){_NAME}", "a name such as mx.example.com, as in Authentication-Results")
]
SignedDomain = Annotated[str, Checked(_read_signed, {"type": "string"})]
SigningDomain = Annotated[str, Checked(read_domain, {"type": "string"})]
Selector = Annotated[str, _SELECTOR]
Instant = Annotated[datetime, Checked(_instant, {"type": "string", "format": "date-time"})]


class SigningKey(Section):
    """A private key, the name its public half has in DNS, and when it is used."""

    selector: Selector = required(
        "The name below _domainkey where DNS has the public key (OpenDKIM Selector).", unit="text"
    )
    file: FilePath = required(
        "The private key, RSA or Ed25519, in PEM without a password (OpenDKIM KeyFile).",
        unit="path from the working folder",
    )
    notbefore: Instant | None = setting(
        None, "The key is not used before this time.", unit="date and time with zone", absent="always"
    )
    notafter: Instant | None = setting(
        None, "The key is not used from this time on.", unit="date and time with zone", absent="for ever"
    )

    @model_validator(mode="after")
    def _begins_first(self) -> Self:
        if self.notbefore is not None and self.notafter is not None and self.notbefore >= self.notafter:
            raise ValueError("the key ends before it begins; allowed: notafter later than notbefore")
        return self


def _unique_selectors(keys: list[SigningKey]) -> list[SigningKey]:
    """One name in DNS holds one key (RFC 6376 section 3.6.2.2)."""
    seen: dict[str, int] = {}
    problems: list[tuple[tuple[str | int, ...], str]] = []
    for index, key in enumerate(keys):
        first = seen.setdefault(key.selector.lower(), index)
        if first != index:
            text = f"{show(key.selector)} is already taken by [{first}]; allowed: each selector once"
            problems.append(((index, "selector"), text))
    if problems:
        raise MisplacedError(problems)
    return keys


class SigningRule(Section):
    """Mail of these domains is signed with these keys."""

    id: Id = required("The name of the rule, for logs.", unit="id, unique among the rules")
    senderdomain: Annotated[list[SignedDomain], Field(min_length=1)] = required(
        "Whose mail is signed: domains; *.example.com is every domain below example.com, * is every domain.",
        unit="list of domains",
    )
    source: Literal["from", "envelope"] = setting(
        "from",
        "Where the sender's domain is read. from: in the From field, which readers see and DMARC checks; envelope: in "
        "MAIL FROM.",
        unit="word",
    )
    domain: SigningDomain | None = setting(
        None, "The domain that signs, d= (OpenDKIM Domain).", unit="domain", absent="the sender's domain"
    )
    keys: Annotated[list[SigningKey], Field(min_length=1), AfterValidator(_unique_selectors)] = required(
        "The keys. For each kind, RSA and Ed25519, one key signs: of those that are valid now, the one with the "
        "latest notbefore; among equals, the last in the list.",
        unit="list of keys",
    )


class Arc(Section):
    """Sealing of forwarded mail (ARC): it passes our own server's findings about a message to later servers."""

    authservid: ServerName = required(
        "The name at the start of our own server's Authentication-Results fields (authserv-id); mail with such a "
        "field is sealed. Fields with this name that come from outside must have been removed (RFC 8601 section 5).",
        unit="host name",
    )
    domain: SigningDomain = required("The domain that seals, d=.", unit="domain")
    keys: Annotated[list[SigningKey], Field(min_length=1), AfterValidator(_unique_selectors)] = required(
        "The RSA keys. Of those that are valid now, the one with the latest notbefore is used; among equals, the last "
        "in the list.",
        unit="list of keys, as in rules",
    )


class Signing(Section):
    """DKIM signatures on outgoing mail (RFC 6376, RFC 8463); a message gets those of every matching rule."""

    onerror: Literal["defer", "unsigned"] = setting(
        "defer",
        "What happens to a message if signing fails on our side. defer: it waits until the fault is repaired; "
        "unsigned: it is sent without a signature.",
        unit="word",
    )
    thread: Size = setting(
        "64KiB",
        "Content from this size on is signed in a thread, so that other mail need not wait.",
        unit="size in bytes",
    )
    arc: Arc | None = setting(
        None,
        "Seals forwarded mail by ARC (RFC 8617).",
        unit="section of authservid, domain and keys",
        absent="nothing is sealed",
    )
    rules: Annotated[list[SigningRule], AfterValidator(unique_ids)] = setting(
        [],
        "Whose mail is signed with which keys: rules, each with an id, senderdomain and keys.",
        unit="list of rules",
    )
