"""test_quarantine_rescan — held mail is checked again, and clean mail may be released

Owns: proofs about `pillarbox quarantine rescan`, against a scripted peer and against rspamd itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.database.operating import killed
from tests.fixtures.database.reviewing import hold
from tests.fixtures.peers.rspamd import GTUBE
from tests.fixtures.peers.web.http_peer import CLOSE, HttpPeer, verdict
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.operating import Pillarbox
    from tests.fixtures.database.reviewing import Reviewer, Reviewing


def at(reviewing: Reviewing, url: str, **settings: Any) -> Reviewer:
    """A reviewer whose configuration names this content check."""
    return reviewing.reviewer(policy={"contentcheck": {"url": url, "timeout": "2m", **settings}})


def statuses(factory: Factory, *ids: int) -> list[str]:
    return [row.status for row in factory.queue(*ids)]


async def lines(reviewer: Reviewer, *words: str) -> tuple[list[Any], Any]:
    """What the command said of each recipient, and in the end."""
    process = await reviewer.start("rescan", *words)
    said, refused = await process.communicate()
    assert process.returncode == 0, refused.decode()
    *rows, last = map(json.loads, said.decode().splitlines())
    return rows, last


def test_rspamd_decides_what_is_clean(factory: Factory, reviewing: Reviewing, rspamd: str) -> None:
    clean = hold(factory, "contentcheck", message=factory.message(b"Subject: fine\r\n\r\nhello\r\n"))
    spam = hold(factory, "contentcheck", message=factory.message(b"Subject: x\r\n\r\n" + GTUBE + b"\r\n"))
    reviewer = at(reviewing, rspamd)
    assert "clean: 1 of 2 recipients; nothing was released" in reviewer.run("rescan", "quarantine=contentcheck")
    assert "reject" in reviewer.said
    assert statuses(factory, *clean, *spam) == ["HOLD", "HOLD"]
    said = reviewer.run("rescan", "quarantine=contentcheck", "--release", "--yes", "--reason", "new rules")
    assert "released 1 of 2 recipients, 1 being clean" in said
    assert statuses(factory, *clean, *spam) == ["DELIVER", "HOLD"]
    [noted] = factory.sql("SELECT * FROM pillarbox.audit")
    assert (noted.verb, noted.wanted, noted.done, noted.skipped) == ("rescan", 2, 1, 1)
    assert (noted.reason, noted.finished is not None) == ("new rules", True)


async def test_a_message_to_many_recipients_is_fetched_once(factory: Factory, reviewing: Reviewing) -> None:
    ids = hold(factory, "contentcheck", count=5)
    async with HttpPeer(verdict()) as peer:
        rows, last = await lines(at(reviewing, peer.url), "quarantine=contentcheck", "--release", "--yes")
    assert (len(peer.requests), len(peer.requests[0].header("Rcpt"))) == (1, 5)
    assert peer.requests[0].header("From") == ["sender@sender.example"]
    assert ([row["id"] for row in rows], last["done"]) == (ids, 5)
    assert statuses(factory, *ids) == ["DELIVER"] * 5


@pytest.mark.parametrize(
    ("action", "settings", "clean"),
    [
        ("no action", {}, "clean"),
        ("add header", {}, ""),
        ("greylist", {}, ""),
        ("greylist", {"actions": {"greylist": "accept"}}, "clean"),
        ("soft reject", {}, ""),
    ],
)
async def test_only_accepted_mail_counts_as_clean(
    factory: Factory, reviewing: Reviewing, action: str, settings: dict[str, Any], clean: str
) -> None:
    held = hold(factory, "contentcheck")
    async with HttpPeer(verdict(action)) as peer:
        [row], _ = await lines(at(reviewing, peer.url, **settings), "--all", "--release", "--dry-run")
    assert (row["action"], row["clean"]) == (action, bool(clean))
    assert statuses(factory, *held) == ["HOLD"]  # without --yes


async def test_mail_too_large_to_check_stays_held(factory: Factory, reviewing: Reviewing) -> None:
    held = hold(factory, "contentcheck")
    async with HttpPeer(verdict()) as peer:
        [row], last = await lines(at(reviewing, peer.url, maxsize=10), "--all", "--release", "--yes")
    assert (row["action"], last["done"], peer.requests) == ("too large", 0, [])
    assert statuses(factory, *held) == ["HOLD"]


async def test_while_rspamd_is_down_mail_stays_held_and_one_line_says_so(
    factory: Factory, reviewing: Reviewing
) -> None:
    held = hold(factory, "contentcheck")
    async with HttpPeer(CLOSE) as peer:
        process = await at(reviewing, peer.url).start("rescan", "--all", "--release", "--yes")
        _, refused = await process.communicate()
    assert process.returncode == 1
    assert b"the content check does not answer; 1 of 1 are not checked and stay held" in refused
    assert b"Traceback" not in refused
    assert statuses(factory, *held) == ["HOLD"]


async def test_a_rescan_killed_while_it_asks_is_finished_by_the_same_command(
    factory: Factory, reviewing: Reviewing
) -> None:
    first = hold(factory, "contentcheck", count=200)  # a whole portion, of one message
    second = hold(factory, "contentcheck", count=3)
    async with HttpPeer(verdict(), "hang", verdict()) as peer:
        reviewer = at(reviewing, peer.url)
        cut = await reviewer.start("rescan", "quarantine=contentcheck", "--release", "--yes")
        await eventually(lambda: len(peer.requests) == 2, "the second message is asked for")
        await killed(cut)
        assert statuses(factory, *first, *second) == ["DELIVER"] * 200 + ["HOLD"] * 3
        _, last = await lines(reviewer, "quarantine=contentcheck", "--release", "--yes")
    assert last["done"] == 3
    rows = factory.sql("SELECT done, finished IS NOT NULL AS finished FROM pillarbox.audit ORDER BY id")
    assert [(row.done, row.finished) for row in rows] == [(200, False), (3, True)]


async def test_a_rescan_can_be_undone(factory: Factory, reviewing: Reviewing, pillarbox: Pillarbox) -> None:
    held = hold(factory, "contentcheck", count=2, reason="odd")
    async with HttpPeer(verdict()) as peer:
        _, last = await lines(at(reviewing, peer.url), "--all", "--release", "--yes")
    assert statuses(factory, *held) == ["DELIVER", "DELIVER"]
    assert (await pillarbox.done("undo", str(last["audit"]), "--yes"))["done"] == 2
    assert statuses(factory, *held) == ["HOLD", "HOLD"]
    assert factory.queue(held[0])[0].metadata["_quarantineid"] == "contentcheck"


def test_a_rescan_without_a_content_check_is_refused(factory: Factory, reviewing: Reviewing) -> None:
    hold(factory, "contentcheck")
    reviewer = reviewing.reviewer()
    reviewer.run("rescan", "--all")
    assert (reviewer.status, "policy.contentcheck is not set" in reviewer.refused) == (1, True)
