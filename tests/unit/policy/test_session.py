"""test_session — the changes of a phase last as documented, and every list is asked once

Owns: examples for smtpd/policy/session.py, with sources that are counted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import pytest

from shared.config.smtpd.policy import Policy
from shared.mail.message import Address
from smtpd.envelope.client import Client, User
from smtpd.policy.compile import compile_policy
from smtpd.policy.facts import CheckResult
from smtpd.policy.session import PolicySession, Sources

if TYPE_CHECKING:
    from smtpd.policy.session import Envelope

SENDER, ANN, BOB = Address("a", "b.example"), Address("ann", "one.example"), Address("bob", "two.example")
CONTENT = b"Subject: x\r\n\r\nbody\r\n"


class Counted:
    """Rates, a database and rspamd in one, which record the questions."""

    def __init__(self) -> None:
        self.counts: list[tuple[str, int, float]] = []
        self.asked: list[str] = []
        self.checked: list[Envelope] = []
        self.wait = 0.0

    async def count(self, key: str, most: int, window: float, n: int = 1) -> float:
        self.counts.append((key, most, window))
        return self.wait

    async def ask(self, query: str, value: str, seconds: float, /) -> bool:
        self.asked.append(value)
        return value.startswith("one")

    async def check(self, content: bytes, envelope: Envelope) -> CheckResult | Literal["down", "skipped"]:
        self.checked.append(envelope)
        return CheckResult("no action", 3.0, {"A": 3.0})


def session(
    *rules: dict[str, Any], sources: Counted | None = None, client: Client | None = None, **more: Any
) -> PolicySession:
    written = {"rules": [{"id": f"r{number}", **rule} for number, rule in enumerate(rules)], **more}
    answers = sources or Counted()
    return PolicySession(
        compile_policy(Policy.model_validate(written)),
        client or Client("192.0.2.7", 25, "default"),
        Sources(rates=answers, ask=answers.ask, check=answers),
        6,
        now=lambda: datetime(2026, 11, 21, tzinfo=UTC),
    )


async def test_changes_at_connect_last_for_the_session_and_changes_at_mail_for_one_message() -> None:
    asked = session(
        {"phase": "connect", "then": {"transport": "all"}},
        {"phase": "mailfrom", "if": {"sender": [""]}, "then": {"hold": "bounces"}},
        {"if": {"recipient": ["ann@one.example"]}, "then": {"metadata": {"for": "ann"}}},
    )
    await asked.connect()
    await asked.mailfrom(None)
    assert (await asked.rcptto(ANN))[0].accepted
    first = await asked.eod(CONTENT)
    await asked.mailfrom(SENDER)
    await asked.rcptto(BOB)
    await asked.rcptto(ANN)
    second = await asked.eod(CONTENT)
    assert [(r.transportid, r.status.value) for r in first.recipients] == [("all", "HOLD")]
    assert [(r.transportid, r.status.value) for r in second.recipients] == [("all", "DELIVER"), ("all", "DELIVER")]
    assert [r.metadata.get("for") for r in second.recipients] == [None, "ann"]


async def test_a_refused_recipient_has_no_row_and_is_not_counted() -> None:
    asked = session(
        {"if": {"recipients": ">1"}, "then": {"defer": "452 4.5.3 One"}},
        {"if": {"recipientdomain": ["one.example"]}, "then": {"reject": "550 5.7.1 No"}},
    )
    await asked.mailfrom(SENDER)
    assert [(await asked.rcptto(to))[0].verdict for to in (ANN, BOB, BOB)] == ["reject", "accept", "defer"]
    assert [row.address for row in (await asked.eod(CONTENT)).recipients] == [BOB]


async def test_a_login_survives_ehlo_and_a_refused_login_changes_nothing() -> None:
    client = Client("192.0.2.7", 25, "default", helo="a")
    asked = session(
        {"phase": "helo", "if": {"helo": ["bad"]}, "then": {"reject": "550 5.7.1 No"}},
        {"phase": "auth", "if": {"user": ["mallory"]}, "then": {"reject": "535 5.7.8 No", "hold": "m"}},
        {"phase": "auth", "then": {"metadata": {"tenant": "{user}"}}},
        client=client,
    )
    client.user = User("mallory")
    assert not (await asked.auth()).accepted
    client.user = User("alice")
    assert (await asked.auth()).accepted
    client.helo = "bad"
    assert (await asked.helo()).reply == "550 5.7.1 No"
    client.helo = "b"
    assert (await asked.helo()).accepted
    await asked.mailfrom(SENDER)
    _, row = await asked.rcptto(ANN)
    assert (row.status.value, row.metadata) == ("DELIVER", {"tenant": "alice", "_policyrule": "r2"})


async def test_a_user_without_auth_passes_the_auth_phase_at_ehlo() -> None:
    client = Client("192.0.2.7", 25, "default", helo="a", user=User("mallory"))
    asked = session(
        {"phase": "helo", "then": {"delay": "2s"}},
        {"phase": "auth", "if": {"user": ["mallory"]}, "then": {"reject": "550 5.7.1 Suspended", "delay": "1s"}},
        client=client,
    )
    decision = await asked.helo()
    assert (decision.reply, decision.delay) == ("550 5.7.1 Suspended", 2.0)


async def test_content_is_checked_once_with_all_recipients() -> None:
    sources = Counted()
    asked = session(
        {"phase": "eod", "if": {"recipientdomain": ["one.example"], "score": ">2"}, "then": {"hold": "x"}},
        {"phase": "eod", "if": {"symbols": ["A"]}, "then": {"metadata": {"a": "{score}"}}},
        sources=sources,
        contentcheck={},
    )
    await asked.mailfrom(SENDER)
    for recipient in (ANN, BOB):
        await asked.rcptto(recipient)
    end = await asked.eod(CONTENT, "42")
    assert [(row.status.value, row.metadata["a"]) for row in end.recipients] == [("HOLD", "3.00"), ("DELIVER", "3.00")]
    [envelope] = sources.checked
    assert (envelope.sender, envelope.recipients, envelope.queueid) == (
        "a@b.example",
        ("ann@one.example", "bob@two.example"),
        "42",
    )


async def test_one_recipient_refused_at_eod_refuses_the_message() -> None:
    asked = session(
        {"phase": "eod", "if": {"recipientdomain": ["two.example"]}, "then": {"reject": "554 5.7.1 No"}},
    )
    await asked.mailfrom(SENDER)
    for recipient in (ANN, BOB):
        await asked.rcptto(recipient)
    end = await asked.eod(CONTENT)
    assert (end.decision.reply, end.recipients, end.headers) == ("554 5.7.1 No", (), b"")


async def test_a_header_field_added_for_some_recipients_occurs_once() -> None:
    asked = session(
        {"phase": "eod", "if": {"recipientdomain": ["one.example"]}, "then": {"accept": True}},
        {"phase": "eod", "then": {"addheader": {"X-A": "b"}}},
        {"phase": "mailfrom", "then": {"addheader": {"X-From": "{sender}"}}},
    )
    await asked.mailfrom(SENDER)
    for recipient in (ANN, BOB, BOB):
        await asked.rcptto(recipient)
    assert (await asked.eod(CONTENT)).headers == b"X-From: a@b.example\r\nX-A: b\r\n"


async def test_a_rate_counts_each_recipient_and_each_message_once() -> None:
    sources = Counted()
    asked = session(
        {"if": {"rate": {"key": ["client", "recipientdomain"], "over": "5/1m"}}, "then": {"defer": "450 4.7.1 a"}},
        {"phase": "eod", "if": {"rate": {"key": ["client"], "over": "2/1h"}}, "then": {"defer": "450 4.7.1 b"}},
        {"phase": "eod", "if": {"recipient": ["x@y.example"]}, "then": {"hold": "x"}},
        sources=sources,
    )
    await asked.mailfrom(SENDER)
    for recipient in (ANN, BOB):
        await asked.rcptto(recipient)
    assert (await asked.eod(CONTENT)).decision.accepted
    assert sources.counts == [
        ("policy/r0\x00192.0.2.7/32\x00one.example", 5, 60.0),
        ("policy/r0\x00192.0.2.7/32\x00two.example", 5, 60.0),
        ("policy/r1\x00192.0.2.7/32", 2, 3600.0),
    ]
    sources.wait = 1.5
    assert (await asked.eod(CONTENT)).decision.reply == "450 4.7.1 b"


async def test_a_query_runs_only_if_all_cheaper_conditions_match() -> None:
    sources = Counted()
    condition = {"in": {"list": "l", "of": "recipientdomain"}, "sender": ["a@b.example"]}
    asked = session(
        {"if": condition, "then": {"hold": "x"}},
        sources=sources,
        lists=[{"id": "l", "query": "SELECT 1 WHERE %(value)s = ''"}],
    )
    for sender in (None, SENDER):
        await asked.mailfrom(sender)
        for recipient in (ANN, BOB, ANN):
            await asked.rcptto(recipient)
    assert sources.asked == ["one.example", "two.example"]
    assert [row.status.value for row in (await asked.eod(CONTENT)).recipients] == ["HOLD", "DELIVER", "HOLD"]


@pytest.mark.parametrize("source", ["rates", "check", "ask"])
async def test_a_missing_source_of_facts_is_451(source: str) -> None:
    rules: dict[str, dict[str, Any]] = {
        "rates": {"if": {"rate": {"key": ["client"], "over": "0/1m"}}, "then": {"reject": "550 5.7.1 no"}},
        "check": {"phase": "eod", "if": {"score": ">-1000"}, "then": {"accept": True}},
        "ask": {"if": {"in": {"list": "l", "of": "client"}}, "then": {"accept": True}},
    }
    written = {
        "rules": [{"id": "r", **rules[source]}],
        "contentcheck": {},
        "lists": [{"id": "l", "query": "SELECT 1 WHERE %(value)s = ''"}],
    }
    policy = compile_policy(Policy.model_validate(written))
    asked = PolicySession(policy, Client("192.0.2.7", 25, "default"), Sources(), 6)
    await asked.mailfrom(SENDER)
    decision, _ = await asked.rcptto(ANN)
    end = await asked.eod(CONTENT) if decision.accepted else None
    replies = [decision.reply, None if end is None else end.decision.reply]
    trouble = "451 4.3.0 Local error in processing, try again"
    assert replies == ([trouble, None] if source == "ask" else [None, trouble])
