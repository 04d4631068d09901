"""test_sessions — the source, allowance and slots that one attempt takes and returns

See: tests/integration/delivery/test_sources.py for attempts over real sockets.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from queued.pacing.pace import Fields, Paces
from queued.routing.route import Hop
from queued.routing.warmup import Warmups
from queued.smtp.sessions import SourceChooser, SourceSettings
from queued.smtp.transaction import ConversationError
from queued.tls.demanded import CLEAR
from queued.waiting.deferral import ParkedError
from shared.config.queued.pacing import Pacing
from shared.config.queued.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
FOUR, SIX, NAMED = (
    Hop("192.0.2.25", 25, "mx4"),
    Hop("2001:db8::25", 25, "mx6"),
    Hop("relay.example", 25, "relay.example"),
)
WARM = {"address": "192.0.2.1", "warmup": {"from": "2026-12-01", "days": [1, 2]}}


class Speaking:
    """Attempts of one transport."""

    def __init__(self, *sources: dict[str, Any], policies: Sequence[dict[str, Any]] = ()) -> None:
        settings = Transport.model_validate({"sources": list(sources)})
        paces = Paces(Pacing.model_validate({"policies": [{"id": f"p{n}", **p} for n, p in enumerate(policies)]}))
        self.voice = SourceSettings.of(settings, "us.example", paces, Warmups())

    async def attempt(self, *hops: Hop, now: datetime = NOW) -> SourceChooser:
        """One attempt at mail that may go to these hosts."""
        speaker = SourceChooser(self.voice, Fields("default", "example.net", site="mx"), now)
        await speaker.prepare(hops)
        return speaker

    async def source(self, hop: Hop, *, used: bool = True, now: datetime = NOW) -> str | None:
        """The address that one attempt at this host speaks from."""
        speaker = await self.attempt(hop, now=now)
        session = speaker.session(hop, CLEAR)
        speaker.done(used=used)
        return session.source


async def test_hosts_without_a_source_of_their_family_are_skipped_if_others_exist() -> None:
    speaking = Speaking({"address": "192.0.2.1"})
    speaker = SourceChooser(speaking.voice, Fields("default", "example.net"), NOW)
    assert list(await speaker.prepare([SIX, FOUR, NAMED])) == [FOUR, NAMED]
    assert list(await speaker.prepare([SIX])) == [SIX]
    with pytest.raises(ConversationError, match="no source address for IPv6"):
        speaker.session(SIX, CLEAR)
    assert (speaker.spoke, speaker.waits) == (False, [])


async def test_an_attempt_uses_one_source_for_all_hosts_of_a_family() -> None:
    speaking = Speaking(*({"address": f"192.0.2.{n}"} for n in range(1, 9)))
    speaker = await speaking.attempt(FOUR)
    other = FOUR._replace(host="192.0.2.26")
    assert speaker.session(FOUR, CLEAR).source == speaker.session(other, CLEAR).source == speaker.source
    assert speaker.asked == {FOUR, other}


async def test_an_unused_warmup_allowance_is_returned() -> None:
    speaking = Speaking(WARM)
    assert await speaking.source(FOUR, used=False) == "192.0.2.1"
    assert await speaking.source(FOUR) == "192.0.2.1"
    speaker = await speaking.attempt(FOUR)
    with pytest.raises(ConversationError, match="has sent its 1 message "):
        speaker.session(FOUR, CLEAR)
    assert [wait.seconds for wait in speaker.waits] == [12 * 3600]


async def test_each_day_has_its_own_warmup_allowance() -> None:
    speaking = Speaking(WARM)
    assert await speaking.source(FOUR) == "192.0.2.1"
    tomorrow = NOW.replace(day=2)
    assert [await speaking.source(FOUR, now=tomorrow) for _ in range(2)] == ["192.0.2.1"] * 2
    assert [await speaking.source(FOUR, now=NOW.replace(day=3)) for _ in range(9)] == ["192.0.2.1"] * 9


async def test_a_source_is_not_used_before_its_first_day() -> None:
    speaker = await Speaking(WARM).attempt(FOUR, now=NOW.replace(month=11, day=30))
    with pytest.raises(ConversationError):
        speaker.session(FOUR, CLEAR)
    assert speaker.waits


async def test_a_policy_slot_is_returned_when_the_attempt_ends() -> None:
    speaking = Speaking(policies=[{"fields": ["site"], "concurrency": 1}])
    first, second = await speaking.attempt(FOUR), await speaking.attempt(FOUR)
    assert first.session(FOUR, CLEAR).source is None
    with pytest.raises(ConversationError):
        second.session(FOUR, CLEAR)
    first.done(used=True)
    assert (await speaking.attempt(FOUR)).session(FOUR, CLEAR).hostname == "us.example"


async def test_a_host_refused_by_its_rate_does_not_count_as_tried() -> None:
    speaking = Speaking(policies=[{"fields": ["site"], "rate": "1/hour"}])
    speaker = await speaking.attempt(FOUR)
    speaker.session(FOUR, CLEAR)
    speaker.done(used=True)
    with pytest.raises(ConversationError):
        speaker.session(FOUR, CLEAR)
    assert (speaker.asked, speaker.spoke) == (set(), True)


async def _rested(_: float) -> bool:
    """Nothing was given back meanwhile."""
    return False


async def test_a_long_connection_interval_parks_the_recipients() -> None:
    speaking = Speaking(policies=[{"fields": ["destination"], "connectinterval": "1h"}])
    gate = (await speaking.attempt(FOUR)).session(FOUR, CLEAR).connect_gate
    assert gate is not None
    await gate(_rested)
    with pytest.raises(ParkedError) as held:
        await gate(_rested)
    assert held.value.until.seconds > 3000
