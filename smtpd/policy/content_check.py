"""content_check — asks rspamd for a verdict on a message

Owns: rspamd's HTTP protocol: the facts of the envelope that it gets, and the strict parsing of its verdict.
Guarantees: an answer is a CheckResult with a known action and a finite score; anything else is "down" and one event,
    and policy.contentcheck.whendown applies. At most policy.contentcheck.concurrency requests run at once; its timeout
    covers waiting, connecting and the whole answer. Content is only read: fields that rspamd wants to add are checked
    and added; its wishes to remove fields or to rewrite the subject are ignored, because content is stored as
    submitted.
See: https://docs.rspamd.com/developers/protocol
Bugs: of very many recipients rspamd gets only the first, about a thousand of ordinary length.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

from shared.config.smtpd.policy_fields import RESERVED_FIELDS
from shared.http import HttpClient, HttpFailed
from shared.observe import events
from smtpd.envelope.places import UNKNOWN
from smtpd.policy.facts import CheckResult
from smtpd.policy.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.config.smtpd.policy_check import ContentCheck
    from shared.http import HttpAnswer
    from smtpd.policy.session import Envelope

ACTIONS: Final = frozenset({"reject", "soft reject", "greylist", "rewrite subject", "add header", "no action"})
_SUSPECT: Final = frozenset({"reject", "soft reject", "rewrite subject", "add header"})
_OK: Final = 200
_LONGEST: Final = 4 * 2**20  # octets of an answer; rspamd's are a few thousand
_MOST_RECIPIENTS: Final = 32_768  # octets of recipients that are sent: rspamd accepts 80 KiB of header at most
_MOST_FIELDS: Final = 50  # that rspamd may have us add
_NAME: Final = re.compile(r"[\x21-\x39\x3b-\x7e]{1,70}")
_FOLD: Final = re.compile(r"[ \t]*[\r\n]+[ \t]*")


class ContentChecker:
    """The content check of one configuration; keeps its connections."""

    def __init__(self, settings: ContentCheck) -> None:
        self._most = settings.maxsize
        self._url = settings.url.rstrip("/") + "/checkv2"
        self._seconds = settings.timeout.total_seconds()
        self._free = asyncio.Semaphore(settings.concurrency)
        self._http = HttpClient(_LONGEST, keep=True)

    async def check(self, content: bytes, envelope: Envelope) -> CheckResult | Literal["down", "skipped"]:
        """The verdict of rspamd on a message; "skipped" above policy.contentcheck.maxsize."""
        if len(content) > self._most:
            events.emit("content.skipped", client=envelope.client, size=len(content))
            return "skipped"
        started = monotonic()
        try:
            result = read_answer(await self._ask(content, envelope))
        except (HttpFailed, ValueError) as error:
            events.emit("content.unavailable", client=envelope.client, error=error, seconds=monotonic() - started)
            return "down"
        events.emit(
            "content.checked",
            client=envelope.client,
            action=result.action,
            score=result.score,
            seconds=monotonic() - started,
        )
        return result

    async def close(self) -> None:
        """Close what is kept open."""
        await self._http.close()

    async def _ask(self, content: bytes, envelope: Envelope) -> HttpAnswer:
        try:
            async with asyncio.timeout(self._seconds), self._free:
                return await self._http.ask("POST", self._url, _headers(envelope), content)
        except TimeoutError:
            raise HttpFailed(f"no answer within {self._seconds:g} s") from None


def read_answer(answer: HttpAnswer) -> CheckResult:
    """The verdict in an answer; raises ValueError when it is none."""
    if answer.status != _OK:
        raise ValueError(f"status {answer.status}")
    try:
        said = json.loads(answer.body)
    except RecursionError:
        raise ValueError("the answer is nested too deeply") from None
    if not isinstance(said, dict):
        raise ValueError("the answer is not a JSON object")  # noqa: TRY004 - bad input, not a bad call
    action, score = said.get("action"), _number(said.get("score"))
    if not isinstance(action, str) or action not in ACTIONS or score is None:
        raise ValueError(f"the answer has no action and score: {one_line(repr(action))}, {one_line(repr(score))}")
    symbols = said.get("symbols")
    marks = [("X-Spam", "Yes"), ("X-Spam-Score", f"{score:.2f}")] if action in _SUSPECT else []
    return CheckResult(
        action,
        score,
        {name: _weight(symbol) for name, symbol in symbols.items()} if isinstance(symbols, dict) else {},
        (*marks, *list(_fields(said))[:_MOST_FIELDS]),
    )


def _headers(envelope: Envelope) -> list[tuple[str, str]]:
    """The request's header fields; everything a client said is made one line."""
    headers = [
        ("IP", envelope.client if envelope.client != UNKNOWN else None),
        ("Hostname", envelope.clientname),
        ("Helo", envelope.helo),
        ("User", envelope.user),
        ("From", envelope.sender),
        *(("Rcpt", recipient) for recipient in _recipient_headers(envelope.recipients)),
        ("TLS-Version", envelope.tls),
        ("Queue-Id", envelope.queueid),
    ]
    return [(name, one_line(value).strip()) for name, value in headers if value]


def _recipient_headers(recipients: Iterable[str]) -> Iterator[str]:
    """As many as the request has room for: a message is not put off because it has many recipients."""
    room = _MOST_RECIPIENTS
    for recipient in recipients:
        room -= len(recipient.encode()) + len("Rcpt: \r\n")
        if room < 0:
            return
        yield recipient


def _fields(said: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """milter.add_headers: each value is text, or an object with `value`, or a list of those."""
    milter = said.get("milter")
    wanted = milter.get("add_headers") if isinstance(milter, dict) else None
    for name, given in wanted.items() if isinstance(wanted, dict) else ():
        if not _NAME.fullmatch(name) or name.lower() in RESERVED_FIELDS:
            continue
        for each in given if isinstance(given, list) else [given]:
            value = each.get("value") if isinstance(each, dict) else each
            if isinstance(value, str):
                yield name, _FOLD.sub(" ", value.strip())


def _weight(symbol: object) -> float:
    return (_number(symbol.get("score")) if isinstance(symbol, dict) else None) or 0.0


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
