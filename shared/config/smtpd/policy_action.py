"""policy_action — the actions of a policy rule

Owns: the section `then` of a rule.
Guarantees: every rule has an action, and decides one thing at most; there is no action that discards mail.
See: docs/reference/policy.md; RFC 5321 section 4.5.3.2 (how long clients wait, which bounds `delay`)
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final, Self

from pydantic import model_validator

from shared.config.fields import Checked, Id, MisplacedError, Section, setting, whole
from shared.config.smtpd.policy_fields import (
    PLACEHOLDER,
    DeferReply,
    FieldName,
    MetadataKey,
    PartitionKey,
    QuarantineId,
    RejectReply,
    Template,
    Truth,
)
from shared.config.units import DURATION_PATTERN, format_duration, parse_duration
from shared.masking import show

LONGEST_DELAY: Final = timedelta(minutes=1)
_DECIDING: Final = ("accept", "reject", "defer")


def _delay(value: object) -> timedelta:
    duration = parse_duration(value)
    if not timedelta(0) < duration <= LONGEST_DELAY:
        raise ValueError(
            f"{show(value)} is out of range; allowed: a duration above zero, at most {format_duration(LONGEST_DELAY)}"
        )
    return duration


class Action(Section):
    """The actions of a rule; at least one is required."""

    accept: Truth = setting(
        False, "Ends the phase: its later rules are not evaluated. This does not allow relaying.", unit="true or false"
    )
    reject: RejectReply | None = setting(
        None, "Refuses permanently, with this reply.", unit="reply 5xx 5.x.x text", absent="not refused"
    )
    defer: DeferReply | None = setting(
        None, "Refuses temporarily, with this reply.", unit="reply 4xx 4.x.x text", absent="not refused"
    )
    hold: QuarantineId | None = setting(
        None,
        "Holds the recipient under this quarantine id (metadata _quarantineid) until a person decides.",
        unit="quarantine id",
        absent="not held",
    )
    holdreason: Template | None = setting(
        None, "Why it is held (metadata _holdreason).", unit="text with placeholders", absent="the rule's id"
    )
    metadata: dict[MetadataKey, Template] = setting(
        {},
        "Adds these keys to the recipient's metadata; a leading underscore is reserved.",
        unit="text with placeholders by key",
    )
    partition: Id | None = setting(
        None,
        "Puts the recipient into this partition (metadata _partid) instead of the one its key hashes to.",
        unit="partition id",
        absent="by the hash of the partition key",
    )
    partitionkey: PartitionKey | None = setting(
        None,
        "Hashes this value to the partition id, instead of policy.partitionkey.",
        unit="partition key",
        absent="policy.partitionkey",
    )
    transport: Id | None = setting(
        None,
        "Delivers by this transport of queued.yaml.",
        unit="transport id",
        absent="the transport default",
    )
    priority: Annotated[int, whole(-9, 9)] | None = setting(
        None,
        "The recipient's priority, higher first, whatever MT-PRIORITY asked for (RFC 6710).",
        unit="whole number from -9 to 9",
        absent="as the client asked, or 0",
    )
    addheader: dict[FieldName, Template] = setting(
        {},
        "Adds these header fields at the top of the message. Not at rcptto, because all recipients share one content.",
        unit="text with placeholders by field name",
    )
    delay: Annotated[timedelta, Checked(_delay, {"type": "string", "pattern": DURATION_PATTERN})] | None = setting(
        None,
        "Delays the reply; of several delays in a phase the longest applies.",
        unit="duration up to 1m",
        absent="no delay",
    )

    @model_validator(mode="before")
    @classmethod
    def _discard_is_absent(cls, value: Any) -> Any:
        if isinstance(value, dict):
            for name in ("discard", "drop"):
                if name in value:
                    text = f"{name} does not exist, because accepted mail is never lost; allowed: reject, defer or hold"
                    raise MisplacedError([((name,), text)])
        return value

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.holdreason is not None and self.hold is None:
            raise MisplacedError([(("holdreason",), "requires hold; allowed: both, or neither")])
        does = [name for name in type(self).model_fields if getattr(self, name) not in (None, {}, False)]
        if not does:
            raise ValueError(f"the rule does nothing; allowed: at least one of {', '.join(type(self).model_fields)}")
        deciding = [name for name in _DECIDING if name in does]
        if len(deciding) > 1:
            raise ValueError(f"{' and '.join(deciding)} exclude each other; allowed: one of accept, reject, defer")
        return self

    def placeholders(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Every placeholder used: the key path it stands at, and its name."""
        texts = [(("metadata", key), text) for key, text in self.metadata.items()]
        texts += [(("addheader", key), text) for key, text in self.addheader.items()]
        for path, text in [*texts, (("holdreason",), self.holdreason or "")]:
            yield from ((path, name) for name in PLACEHOLDER.findall(text))
