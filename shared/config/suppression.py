"""suppression — addresses that get no mail, in both files

Owns: the models of the section `suppression` of smtpd.yaml and of queued.yaml.
Guarantees: patterns are addresses or domains in one spelling.
See: docs/how-to/deliver/suppression.md; RFC 3463 section 3 (enhanced status codes); RFC 5965 section 7.3 (feedback
    types)
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, model_validator

from shared.config.fields import FilePath, HostName, Interval, Section, Text, matching, section, setting, whole
from shared.mail import address
from shared.mail.suppression import target
from shared.masking import show

Status = Annotated[str, matching(r"[245]\.\d{1,3}\.\d{1,3}", "an enhanced status code such as 5.1.1")]
FeedbackType = Literal["abuse", "fraud", "virus", "other", "opt-out", "opt-out-list", "not-spam", "auth-failure"]


def _pattern(value: Any) -> Any:
    try:
        address.parse(value if "@" in value else f"any@{value}")
    except address.AddressRefused as error:
        raise ValueError(f"{show(value)}: {error}; allowed: an address or a domain") from None
    return target(value)


Pattern = Annotated[Text, AfterValidator(_pattern)]


class SuppressionAtRcpt(Section):
    """What happens at smtpd to mail to suppressed addresses, and the addresses that take reports from any client."""

    action: Literal["off", "reject", "hold"] = setting(
        "off",
        "What happens to a suppressed recipient. off: it is accepted; reject: 550 5.7.1; hold: it is accepted and put "
        "on hold under the quarantine id `suppressed`.",
        unit="word",
    )
    keep: Interval = setting("10s", "How long an answer of the table is cached.", unit="duration")
    timeout: Interval = setting(
        "2s", "How long the table may take to answer; after that the client gets 451.", unit="duration"
    )
    accept: list[Pattern] = setting(
        [],
        "Where bounces and feedback reports come in: mail to these addresses and domains is accepted from every "
        "client, whatever relay.networks says. Use the same as suppression.addresses of queued.yaml.",
        unit="list of addresses and domains",
    )


class ReturnPath(Section):
    """The sender that mail leaves with instead of its own, so that what bounces names its message and comes to us."""

    domain: HostName | None = setting(
        None, "The domain of that sender; its mail must reach smtpd.", unit="host name", absent="mail keeps its sender"
    )
    secret: FilePath | None = setting(
        None,
        "A file with the secret that signs it, at least 16 octets, the same for all workers.",
        unit="path from the working folder",
        absent="required with domain",
    )

    @model_validator(mode="after")
    def _has_secret(self) -> Self:
        if self.domain is not None and self.secret is None:
            raise ValueError("a domain without a secret could be written by anybody; allowed: both domain and secret")
        return self


class Suppression(Section):
    """Which addresses get no mail, and how workers learn of them."""

    atdelivery: Literal["off", "reject"] = setting(
        "reject",
        "What happens to mail to suppressed addresses at delivery. reject: it is finished as rejected, and its sender "
        "is notified. An empty table costs nothing.",
        unit="word",
    )
    addresses: list[Pattern] = setting(
        [],
        "Where bounces and feedback reports come in: mail to these addresses and domains is read and not delivered.",
        unit="list of addresses and domains",
    )
    evidence: Literal["signed", "known"] = setting(
        "known",
        "What a report must prove. known: knowledge of the message, by our signed return path or by the id in our "
        "Received field, if we sent the message to that address; signed: only our signed return path counts.",
        unit="word",
    )
    returnpath: ReturnPath = section(ReturnPath, "A signed envelope sender that replaces the mail's own.")
    hard: list[Status] = setting(
        ["5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.2.1"],
        "Failures of which one is enough to suppress an address.",
        unit="list of enhanced status codes",
    )
    soft: Annotated[int, whole(0, 10_000)] = setting(
        5,
        "How many other failures suppress an address; 5.6.x and 5.7.x, which are about the message, never count. 0 "
        "turns it off.",
        unit="failures",
    )
    window: Interval = setting("30d", "How long such a failure is remembered.", unit="duration")
    keep: Interval | None = setting("180d", "How long an address stays suppressed after a bounce.", unit="duration")
    feedback: list[FeedbackType] = setting(
        ["abuse", "fraud", "opt-out", "opt-out-list"],
        "The types of feedback reports (RFC 5965) that suppress the address they are about.",
        unit="list of feedback types",
    )
    keepfeedback: Interval | None = setting(
        None, "How long an address stays suppressed after a feedback report.", unit="duration", absent="for ever"
    )
