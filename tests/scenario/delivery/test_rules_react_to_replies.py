"""test_rules_react_to_replies — a running worker applies the rules of queued.yaml to replies

Owns: the proof for each action: defer, bounce, hold, suspend; other mail is not affected.
See: docs/how-to/deliver/react-to-replies.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


async def test_each_reply_triggers_the_action_of_its_rule(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    rules = [
        {"id": "believe-it", "if": {"code": ["451"]}, "bounce": "Nobody lives there"},
        {"id": "look-at-it", "if": {"code": ["550"], "phase": ["rcpt"]}, "hold": "review", "reason": "refused"},
        {"id": "not-for-good", "if": {"reply": ["554*scripted*"]}, "defer": "2h"},
    ]
    worker = await system.worker(books.sink.port, rules=rules)
    for number, box in enumerate(("temperror", "permerror", "554dot")):
        await books.submit(smtpd, numbered(1, first=number, box=box))
    await system.until("SELECT count(*) = 3 FROM attempts")
    [(result, error)] = await system.rows("SELECT result, last_error FROM archive")
    assert (result, error[:24]) == ("failed", "Nobody lives there (451 ")
    [held] = await system.rows(
        "SELECT metadata->>'_quarantineid', metadata->>'_holdreason', token FROM queue WHERE status = 'HOLD'"
    )
    assert held == ("review", "refused", None)
    [later] = await system.rows(
        "SELECT next_retry - last_retry > '119 minutes', last_error FROM queue WHERE status = 'DELIVER'"
    )
    assert (later[0], later[1][:3]) == (True, "554")
    assert {line["rules"] for line in await worker.until_said("rules.fired", 3)} == {rule["id"] for rule in rules}


async def test_a_suspended_destination_waits_without_tries_and_others_continue(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    rules = [{"id": "slow-down", "if": {"code": ["451"]}, "suspend": "1h", "reason": "they ask for it"}]
    await system.worker(books.sink.port, rules=rules, transport={"retry": {"intervals": ["1h"]}})
    await books.submit(smtpd, numbered(1, ["strict.test"], box="temperror"))
    await system.until("SELECT count(*) = 1 FROM suspends")
    await books.submit(smtpd, numbered(3, ["strict.test"], first=10, box="late"))
    await books.submit(smtpd, numbered(3, ["easy.test"], first=20, box="free"))
    await system.until("SELECT count(*) = 3 FROM archive")
    waiting = "SELECT count(*) = 3 FROM queue WHERE retry_count = 0 AND next_retry > ts AND token IS NULL"
    await system.until(waiting)
    assert await system.value("SELECT count(*) FROM attempts WHERE recipientdomain = 'strict.test'") == 1
    assert {record.recipients[0].split("@")[1] for record in books.sink.received} == {"easy.test"}
