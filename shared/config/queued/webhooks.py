"""webhooks — the HTTP endpoints that get events, in queued.yaml

Owns: the models of the section `webhooks`, and the kinds of events.
Guarantees: a condition can be read, and asked of an event; no secret stands in the file itself.
See: docs/how-to/send/webhooks.md; docs/reference/condition.md
"""

import re
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, Field

from shared.config.condition.of_event import condition
from shared.config.condition.tree import ConditionError
from shared.config.fields import (
    Interval,
    Section,
    matching,
    required,
    section,
    setting,
    unique_ids,
    url_matching,
    whole,
)
from shared.config.queued.routing import Truth
from shared.masking import show
from shared.url import parts_of

EventKind = Literal[
    "accepted",
    "delivered",
    "deferred",
    "failed",
    "bounced",
    "expired",
    "held",
    "released",
    "suppressed",
    "complained",
    "deleted",
    "report.alarm",
]
KINDS: Final[tuple[str, ...]] = get_args(EventKind)
_URL_PATTERN: Final = r"https?://[^\s/?#@]+(?:[/?][^\s#]*)?"
URL_ALLOWED: Final = "http:// or https://, a host and a path, without user, password and #"
NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
NAME_ALLOWED: Final = "1 to 64 of letters, digits, dot, underscore and hyphen"
LARGEST_BATCH: Final = 1000


def is_endpoint_url(url: str) -> bool:
    """Whether requests can be sent there: the pattern fits, and host and port are valid."""
    return re.fullmatch(_URL_PATTERN, url) is not None and parts_of(url) is not None


def _condition(text: str) -> str:
    try:
        condition(text)
    except ConditionError as error:
        raise ValueError(f"{show(text)}: {error.reason}") from None
    return text


class WebhookEndpoint(Section):
    """One HTTP endpoint and the events that it gets."""

    id: Annotated[str, matching(NAME_PATTERN, NAME_ALLOWED)] = required("The endpoint's name.", unit="id, unique")
    url: Annotated[str, url_matching(_URL_PATTERN, URL_ALLOWED)] = required("Where requests go.", unit="URL")
    events: Annotated[list[EventKind], Field(min_length=1)] = required(
        "The kinds of events that it gets.", unit=f"list of {', '.join(KINDS)}"
    )
    condition: Annotated[str, AfterValidator(_condition)] = setting(
        "", "Which recipients it gets events of, in the language of conditions; empty is all.", unit="condition"
    )
    secrets: Annotated[
        list[Annotated[str, matching(r"file:.+|env:[A-Za-z_][A-Za-z0-9_]*", "file:PATH or env:NAME")]],
        Field(min_length=1),
    ] = required(
        "Where the secrets are that sign its requests, each whsec_ and base64; several while one replaces another.",
        unit="list of file:PATH or env:NAME",
    )
    private: Truth = setting(
        False, "Whether it may have an address that only our own networks reach, loopback included.", unit="truth"
    )
    batch: Annotated[int, whole(1, LARGEST_BATCH)] = setting(
        1, "The most events in one request; with 1 each event is a request of its own.", unit="events"
    )


class Webhooks(Section):
    """HTTP endpoints that receive events about mail."""

    enabled: Truth = setting(True, "Whether this worker may bring events to endpoints; one worker does.", unit="truth")
    timeout: Interval = setting("15s", "How long a request may take.", unit="duration")
    endpoints: Annotated[list[WebhookEndpoint], AfterValidator(unique_ids)] = section(
        list, "The endpoints beside those of `pillarbox webhooks add`. List of endpoints, default []."
    )
