"""policy_config — rules that decide at acceptance what becomes of a recipient

Owns: the section `policy` of smtpd.yaml; what a rule may ask about and what it may do.
Called by: shared.smtpd_config; smtpd's policy reads the models.
Guarantees: every rule does something; ids are unique; domains are in lower case, in addresses too, since
they compare without case (RFC 5321 section 2.4) while local parts do not; metadata keys that begin with an
underscore stay ours. A list that was left out is empty in the model and asks nothing; an empty list is refused
in YAML, since it could be read as "nobody" as well as "everybody".
See: Halon's metadata `_quarantineid` and `_partid`
"""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from shared.config_fields import (
    Checked,
    Id,
    IpNetwork,
    Section,
    Text,
    matching,
    quotes_hint,
    required,
    section,
    setting,
    unique_ids,
)
from shared.masking import show

# Any alphabet: SMTPUTF8 domains (RFC 6531) are written as they are.
_DOMAIN = r"[\w-]+(\.[\w-]+)*"
_ADDRESS = rf"[^\s@<>]+@({_DOMAIN}|\[[^\s\]]+\])"


_read_domain = matching(rf"(\*\.)?{_DOMAIN}", "a domain such as example.com, or *.example.com for those below it").read
_read_address = matching(_ADDRESS, "an address such as user@example.com").read


def _domain(value: object) -> str:
    return str(_read_domain(value)).lower()


def _address(value: object) -> str:
    local, at, domain = str(_read_address(value)).rpartition("@")
    return local + at + domain.lower()


def _sender(value: object) -> str:
    if value == "":
        return ""
    try:
        return _address(value)
    except ValueError:
        allowed = 'an address such as user@example.com, or "" for the null sender'
        raise ValueError(f"{show(value)} is not a sender; allowed: {allowed}{quotes_hint(value)}") from None


_SOME = Field(min_length=1)
_TEXT_SCHEMA = {"type": "string"}
Domain = Annotated[str, Checked(_domain, _TEXT_SCHEMA)]
Address = Annotated[str, Checked(_address, _TEXT_SCHEMA)]
Sender = Annotated[str, Checked(_sender, _TEXT_SCHEMA)]
# Halon's own examples carry a colon: mailquarantine:release1.
QuarantineId = Annotated[
    str, matching(r"[A-Za-z0-9._:-]{1,64}", "1 to 64 of A-Z, a-z, 0-9, dot, underscore, colon and hyphen")
]
MetadataKey = Annotated[str, matching(r"[^_\0][^\0]*", "text that does not begin with an underscore")]


def _asks(text: str, *, unit: str) -> Any:
    return Field(
        default_factory=list,
        validate_default=False,
        description=f"{text} List of {unit}, default none (not asked).",
    )


class Condition(Section):
    """What a rule asks: every list given must match, and one entry of a list is enough for that."""

    client: Annotated[list[IpNetwork], _SOME] = _asks("The networks the client connects from.", unit="IP networks")
    user: Annotated[list[Text], _SOME] = _asks("The users the client authenticated as.", unit="names")
    sender: Annotated[list[Sender], _SOME] = _asks('The envelope senders; "" is the null sender.', unit="addresses")
    senderdomain: Annotated[list[Domain], _SOME] = _asks(
        "The domains of the envelope sender; *.example.com is every domain below example.com.", unit="domains"
    )
    recipient: Annotated[list[Address], _SOME] = _asks("The envelope recipients.", unit="addresses")
    recipientdomain: Annotated[list[Domain], _SOME] = _asks(
        "The domains of the envelope recipient; *.example.com is every domain below example.com.",
        unit="domains",
    )


class Action(Section):
    """What a rule does; it must do something."""

    hold: QuarantineId | None = setting(
        None,
        "Holds the recipient under this quarantine id (metadata _quarantineid) until someone decides.",
        unit="quarantine id",
        absent="not held",
    )
    metadata: dict[MetadataKey, str] = setting(
        {},
        "Adds these keys to the recipient's metadata; a leading underscore is reserved.",
        unit="text by key",
    )
    partition: Id | None = setting(
        None,
        "Puts the recipient into this partition (metadata _partid) instead of the one of its domain's hash.",
        unit="partition id",
        absent="by the domain's hash",
    )
    transport: Id | None = setting(
        None,
        "Delivers by this transport of queued.yaml.",
        unit="transport id",
        absent="the transport default",
    )

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not (self.hold or self.metadata or self.partition or self.transport):
            raise ValueError("the rule does nothing; allowed: at least one of hold, metadata, partition, transport")
        return self


class Rule(Section):
    """One condition and what follows from it."""

    id: Id = required("The name of the rule, for logs and metrics.", unit="id, unique among the rules")
    condition: Condition = section(
        Condition, "What must be true of client, sender and recipient; empty is always true.", alias="if"
    )
    action: Action = required("What then becomes of the recipient.", unit="section", alias="then")


class Policy(Section):
    """Decides at acceptance what becomes of each recipient."""

    rules: Annotated[list[Rule], AfterValidator(unique_ids)] = setting(
        [],
        "Rules, each with an id, what it asks (if) and what it does (then).",
        unit="list of rules",
    )
