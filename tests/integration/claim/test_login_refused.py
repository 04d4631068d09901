"""test_login_refused — a claim says of which mail our own login was what stopped it, by the words that are in its row

See: queued/outcome/own_login.py; sql/queries/delivery/claim.sql; with a relay,
    tests/scenario/delivery/test_reload_fixes_a_refused_login.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queued.destinations.destination import Destination, Rest, Share, Waiting
from queued.destinations.feedback import Steering
from queued.outcome.classify import EXCEPTIONS, OF_OUR_LOGIN, classify_reply, of_our_login
from queued.outcome.own_login import note, noted
from queued.waiting.deferral import Deferral
from shared.mail.outcome import Outcome
from shared.mail.smtp_reply import Reply
from tests.fixtures.database.results import claim

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

SILENT = Outcome("deferred", "destination", None, "4.4.1", "connect to relay.test[192.0.2.1]:25: refused")
ROOM = Share(1000, 1_000_000_000)


def refusals() -> list[str]:
    """What rows say of mail that our login stops, by the tables of the classification."""
    texts = ["cannot log in: relay.test refused our login by PLAIN: 535 5.7.8 no"]
    for phase, code, _, scope, when, _ in EXCEPTIONS:
        if scope == "us":
            reply = Reply(code, "5.7.0" if when == "X.7" else None, ("log in first",))
            outcome = classify_reply(reply, phase or "rcpt")
            assert of_our_login(outcome)
            texts.append(outcome.text)
    for status in OF_OUR_LOGIN:
        for code in (450, 550):
            outcome = classify_reply(Reply(code, f"{code // 100}.{status}", ("no",)), "dot")
            assert of_our_login(outcome)
            texts.append(outcome.text)
    destination = Destination("transport default", Steering(initial=20, cohorts=1000), Rest(60.0, 900.0), 0.0)
    for why in tuple(texts):
        place = destination.offer((0, 1), 1, 100, ROOM, 0.0)
        if isinstance(place, Waiting):
            destination.leave(place, 1.0, reached=False, why=why, barred=True)
        parked = destination.offer((0, 2), 1, 100, ROOM, 2.0)
        assert isinstance(parked, Deferral)
        texts.append(f"waiting: {parked.reason}")
        destination = Destination("transport default", Steering(initial=20, cohorts=1000), Rest(60.0, 900.0), 0.0)
    return [*texts, note(SILENT).text, note(note(SILENT)).text, f"waiting: {noted('3 attempts under way')}"]


def others() -> list[str | None]:
    """What rows say of other mail."""
    return [
        None,
        SILENT.text,
        "450 4.2.1 535 messages are enough",
        "450 4.7.1 cannot log in: is what a peer may say",
        "503 5.5.1 RCPT first",
        "waiting: example.com does not answer: 535 5.7.8 no",
        "waiting: 3 attempts under way to transport default",
    ]


async def test_a_claim_knows_what_our_login_stopped(factory: Factory) -> None:
    texts = [*refusals(), *others()]
    for id_, text in zip(factory.rows(len(texts)), texts, strict=True):
        factory.sql("UPDATE pillarbox.queue SET last_error = %(said)s WHERE id = %(id)s", said=text, id=id_)
    claimed = {c.id: c.login_refused for c in await claim(factory.uri, len(texts))}
    assert [texts[at] for at, (_, refused) in enumerate(sorted(claimed.items())) if refused] == refusals()
