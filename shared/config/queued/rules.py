"""rules — rules about replies that mean more than their code, in queued.yaml

Owns: the models of a rule: its conditions on a reply, and its action.
Guarantees: a rule has at least one condition and one fate: to wait, to bounce or to hold. Expressions match in linear
    time (shared.patterns), so that no peer can stall a worker by its replies.
See: docs/how-to/deliver/react-to-replies.md; Halon's bounce patterns; KumoMTA's traffic shaping automation
"""

from typing import Annotated, Final, Literal, Self

from pydantic import model_validator

from shared.config.fields import Checked, Domain, Id, Interval, MisplacedError, Section, matching, required, setting
from shared.config.smtpd.policy_fields import SOME, CountComparison, Pattern, QuarantineId, asks

Code = Annotated[str, matching(r"[2-5]([0-9][0-9]|[0-9]x|xx)", "a reply code in quotes, such as 421, 45x or 5xx")]
Status = Annotated[
    str,
    matching(
        r"[245]\.([0-9]{1,3}|\*)\.([0-9]{1,3}|\*)",
        "an enhanced code such as 4.7.28, 5.7.* or 4.*.* (RFC 3463 section 2)",
    ),
]
Step = Literal["connect", "greeting", "helo", "starttls", "auth", "mail", "rcpt", "data", "body", "dot"]
_line = matching(r"[\x20-\x7e]{1,400}", "one line of 1 to 400 printable ASCII characters")
Line = Annotated[str, Checked(_line.read, {"type": "string"})]

_FATES: Final = ("defer", "bounce", "hold")


class ReplyCondition(Section):
    """The conditions of a rule: all that are given must match; of a list, one entry must."""

    reply: Annotated[list[Pattern], SOME] = asks(
        "The reply: code, enhanced code and text as in the log; without a reply, the failure. A glob matches the "
        "whole reply, /a regular expression/ any part of it; case is ignored.",
        unit="patterns",
    )
    code: Annotated[list[Code], SOME] = asks("The reply codes; x is any digit.", unit="codes in quotes")
    enhanced: Annotated[list[Status], SOME] = asks(
        "The enhanced codes as the host sent them; * is any number.", unit="codes"
    )
    phase: Annotated[list[Step], SOME] = asks(
        "The phase that the reply belongs to.",
        unit="connect, greeting, helo, starttls, auth, mail, rcpt, data, body, dot",
    )
    outcome: Annotated[list[Literal["deferred", "failed"]], SOME] = asks(
        "The outcome without rules.", unit="deferred, failed"
    )
    destination: Annotated[list[Domain], SOME] = asks(
        "The recipient's domain; .example.com is every domain below example.com.", unit="domains"
    )
    transport: Annotated[list[Id], SOME] = asks("The transport.", unit="ids of transports")
    site: Annotated[list[Pattern], SOME] = asks(
        "The site: the mail exchangers that the destination shares with others (KumoMTA site name); not available "
        "with smart hosts.",
        unit="patterns",
    )
    tries: CountComparison | None = setting(
        None, "The number of this try, from 1.", unit="comparison such as >=3", absent="not asked"
    )


class ReplyRule(Section):
    """What to do about replies that match the conditions. The first matching rule of each kind decides that kind."""

    id: Id = required("The name of the rule, for logs.", unit="id, unique among the rules")
    condition: ReplyCondition = required("The conditions.", unit="section of conditions", alias="if")
    defer: Interval | None = setting(
        None,
        "Tries again after this time at the earliest, even if the reply was permanent.",
        unit="duration",
        absent="as without the rule",
    )
    bounce: Line | None = setting(
        None,
        "Gives the recipient up, with this text in the notification to the sender, before the host's reply.",
        unit="text",
        absent="as without the rule",
    )
    hold: QuarantineId | None = setting(
        None,
        "Holds the recipient under this quarantine id (metadata _quarantineid) until a person decides.",
        unit="quarantine id",
        absent="as without the rule",
    )
    reason: Line | None = setting(
        None, "Why it is held or suspended (metadata _holdreason).", unit="text", absent="the rule's id"
    )
    suspend: Interval | None = setting(
        None,
        "Stops sending there for this time (KumoMTA suspension); mail waits without counting tries.",
        unit="duration",
        absent="nothing is suspended",
    )
    suspended: Literal["destination", "site", "source"] = setting(
        "destination",
        "What `suspend` applies to. destination: the recipient's domain; site: every domain with the same mail "
        "exchangers; source: this destination from the source address that was used.",
        unit="word",
    )
    concurrency: Literal["lower"] | None = setting(
        None,
        "lower: one connection fewer to the destination, as after a failed attempt.",
        unit="word",
        absent="as without the rule",
    )

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        fates = [name for name in _FATES if getattr(self, name) is not None]
        if len(fates) > 1:
            raise MisplacedError(
                [((fates[1],), f"conflicts with {fates[0]}; allowed: only one of {', '.join(_FATES)}")]
            )
        if not fates and self.suspend is None and self.concurrency is None:
            raise ValueError(f"the rule does nothing; allowed: {', '.join(_FATES)}, suspend, concurrency")
        if not any(getattr(self.condition, name) for name in ReplyCondition.model_fields):
            raise MisplacedError([(("if",), "asks nothing; allowed: at least one condition")])
        return self
