"""test_accounts — the accounts report lost, duplicated, altered and unknown mail, and times

Owns: each figure, from one synthetic run that has all of them.
See: tests/chaos/accounts.py.
"""

from __future__ import annotations

import hashlib
from itertools import islice

from scripts.demo.sample_mail import Sample
from scripts.sink.records import Received
from tests.chaos.accounts import Accounts
from tests.chaos.senders import samples

CONTENT = b"Subject: x\r\n\r\nbody\r\n"
OURS = b"Received: from a by b\r\n\twith SMTP\r\n"


def sent(accounts: Accounts, name: str, reply: str, at: float = 1.0) -> None:
    sample = Sample(f"{name}@origin.example", (f"{name}@elm.example",), CONTENT)
    accounts.submit(sample)
    accounts.answer(sample, [reply], at)


def key(name: str) -> tuple[str, str]:
    return f"{name}@origin.example", f"{name}@elm.example"


def arrived(accounts: Accounts, name: str, at: float, content: bytes = OURS + CONTENT) -> None:
    digest = hashlib.sha256(content).hexdigest()
    recipients = (f"{name}@elm.example",)
    accounts.arrive(Received(0.0, f"{name}@origin.example", recipients, digest, len(content), True, content), at)


def test_every_recipient_is_in_one_account() -> None:
    accounts = Accounts()
    for name, reply in {
        "once": "250 2.0.0 OK",
        "twice": "250 2.0.0 OK",
        "lost": "250 2.0.0 OK",
        "altered": "250 2.0.0 OK",
        "refused": "451 4.3.0 later",
        "unknown": "",
        "committed": "",
    }.items():
        sent(accounts, name, reply)
    for name in ("once", "twice", "twice", "committed", "committed"):
        arrived(accounts, name, 2.0)
    arrived(accounts, "altered", 2.0, OURS + CONTENT.replace(b"body", b"bodies"))
    assert str(accounts.figures()) == (
        "accepted=4 delivered=3 lost=1 duplicates=2 altered=1 refused=1 unknown=2 surprising=1"
    )
    assert accounts.outstanding == 1


def test_mail_that_arrives_before_its_250_is_not_outstanding() -> None:
    accounts = Accounts()
    sample = Sample("early@origin.example", ("early@elm.example",), CONTENT)
    accounts.submit(sample)
    arrived(accounts, "early", 1.0)
    accounts.answer(sample, ["250 2.0.0 OK"], 2.0)
    assert (accounts.outstanding, accounts.figures().lost, accounts.figures().delivered) == (0, 0, 1)


def test_times_are_measured_from_the_end_of_a_fault() -> None:
    accounts = Accounts()
    sent(accounts, "before", "250 2.0.0 OK", at=1.0)
    sent(accounts, "refused", "451 4.3.0 later", at=5.0)
    sent(accounts, "after", "250 2.0.0 OK", at=6.0)
    arrived(accounts, "after", 7.0)
    arrived(accounts, "before", 9.0)
    assert accounts.first_after(4.0) == (2.0, 3.0)
    assert accounts.cleared(4.0) == 5.0


def test_a_dead_worker_explains_duplicates_of_mail_the_sink_had_only() -> None:
    accounts = Accounts()
    for name in ("taken", "claimed", "idle"):
        sent(accounts, name, "250 2.0.0 OK")
    arrived(accounts, "taken", 2.0)
    accounts.strike({key("taken"), key("claimed")})
    assert accounts.in_flight == {(key("taken"), 1)}
    for name in ("taken", "claimed"):
        arrived(accounts, name, 3.0)
    assert accounts.unexplained() == []
    arrived(accounts, "claimed", 4.0)  # one duplicate in total, as many as were in flight, but of another recipient
    assert accounts.unexplained() == [key("claimed")]


def test_mail_in_flight_may_be_duplicated_once() -> None:
    accounts = Accounts()
    sent(accounts, "taken", "250 2.0.0 OK")
    arrived(accounts, "taken", 2.0)
    accounts.strike({key("taken")})
    arrived(accounts, "taken", 3.0)
    assert accounts.unexplained() == []
    arrived(accounts, "taken", 4.0)
    assert accounts.unexplained() == [key("taken")]


def test_a_surviving_worker_may_duplicate_its_claimed_mail() -> None:
    accounts = Accounts()
    sent(accounts, "claimed", "250 2.0.0 OK")
    accounts.strike({key("claimed")}, alive=True)
    for at in (2.0, 3.0):
        arrived(accounts, "claimed", at)
    assert (len(accounts.in_flight), accounts.unexplained()) == (1, [])


def test_after_an_outage_longer_than_leases_mail_that_was_in_flight_may_have_come_again() -> None:
    accounts = Accounts()
    for name in ("finished", "held", "recorded"):
        sent(accounts, name, "250 2.0.0 OK")
    arrived(accounts, "recorded", 2.0)
    arrived(accounts, "finished", 4.0)
    arrived(accounts, "held", 4.0)
    arrived(accounts, "finished", 14.0)  # claimed by another worker, sent, recorded before we asked
    accounts.outage({key("finished"), key("held")}, {key("held")}, 5.0)
    assert accounts.in_flight == {(key("finished"), 1), (key("held"), 1)}
    arrived(accounts, "held", 15.0)
    assert accounts.unexplained() == []
    for name in ("finished", "recorded"):
        arrived(accounts, name, 16.0)
    assert accounts.unexplained() == [key("finished"), key("recorded")]


def test_a_promised_notification_is_accounted_like_mail() -> None:
    accounts = Accounts()
    sent(accounts, "known", "250 2.0.0 OK")
    accounts.promise("known@origin.example", "again@elm.example", 2.0)
    arrived(accounts, "known", 3.0)
    assert accounts.figures().lost == 1


def test_the_seed_decides_the_generated_mail() -> None:
    first, again, other = (list(islice(samples(seed, "r"), 20)) for seed in (1, 1, 2))
    assert first == again != other
    assert {len(sample.recipients) for sample in first} > {1}
    assert any(b"\r\n." in sample.content for sample in first)
