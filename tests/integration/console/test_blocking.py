"""test_blocking — reviewers block a sender of held mail, smtpd refuses it, and they take the block back

Owns: proofs about httpd/console/blocking.py, operate/quarantine/block.py and the rule that the pages and the docs show.
"""

from __future__ import annotations

import re
import smtplib
from typing import TYPE_CHECKING, Any

import yaml

from httpd.console.pages import template
from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import path_of, post, signed_in
from tests.fixtures.database.reviewing import hold

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory


def shown_rule() -> dict[str, Any]:
    """The list and the rule as pages show them, without waiting for answers that are kept."""
    found: dict[str, Any] = yaml.safe_load(re.sub(r"</?pre[^>]*>", "", template("review/block_rule.html")))
    found["policy"]["lists"][0]["keep"] = "1ms"
    return found


def refused(port: int, sender: str) -> str:
    """What smtpd says to a sender; empty where it takes the sender."""
    with smtplib.SMTP("127.0.0.1", port, timeout=30) as client:
        client.ehlo("client.example")
        code, said = client.mail(sender)
    return "" if code == 250 else f"{code} {said.decode()}"


async def test_a_blocked_sender_is_refused_until_the_block_is_taken_back(system: System, factory: Factory) -> None:
    [held] = hold(factory, "spam")
    sender = factory.queue(held)[0]
    address = f"{sender.senderlocalpart}@{sender.senderdomain}"
    smtpd = await system.smtpd(**shown_rule())
    async with Api(system, await system.httpd(smtpd=shown_rule())) as api:
        client = await signed_in(api, "rita", "reviewer")
        port = smtpd.address[1]
        assert refused(port, address) == ""
        path = f"/console/held/{held}/block"
        asked = (await client.get(path)).text
        assert address in asked
        assert "every sender at" not in asked
        assert refused(port, address) == ""
        without = await post(client, path, path, **{"reason": " ", "for": "1d"})
        assert (without.status_code, "needs a reason" in without.text) == (422, True)
        sent = await post(client, path, path, **{"reason": "phishing <b>", "for": "1d"})
        listed = (await client.get(path_of(sent))).text
        assert f"Mail of <b><bdi>{address}</bdi></b> is refused from now on" in listed
        assert "phishing &lt;b&gt;" in listed
        assert refused(port, address.upper()) == "550 5.7.1 Mail of this sender is not accepted here"
        assert refused(port, f"other-{address}") == ""

        mary = await signed_in(api, "mary", "reviewer")
        assert "/blocked/end" not in (await mary.get("/console/blocked")).text
        assert (await post(mary, "/console/account", "/console/blocked/end", target=address)).status_code == 403
        assert refused(port, address) != ""
        await post(client, "/console/blocked", "/console/blocked/end", target=address)
        assert refused(port, address) == ""


async def test_whole_domains_are_for_operators_and_mail_of_other_quarantines_for_its_reviewers(
    system: System, factory: Factory
) -> None:
    [held], [legal] = hold(factory, "spam"), hold(factory, "legal")
    async with Api(system, await system.httpd(smtpd=shown_rule())) as api:
        rita = await signed_in(api, "rita", "reviewer", reviews=["spam"])
        form = {"reason": "phishing", "for": "", "whole": "yes"}
        assert (await post(rita, "/console/account", f"/console/held/{held}/block", **form)).status_code == 403
        form = {"reason": "phishing", "for": ""}
        assert (await post(rita, "/console/account", f"/console/held/{legal}/block", **form)).status_code == 403
        assert factory.sql("SELECT 1 FROM pillarbox.blocked_senders") == []
        olga = await signed_in(api, "olga", "operator")
        path = f"/console/held/{legal}/block"
        await post(olga, path, path, **form, whole="yes")
        [row] = factory.sql("SELECT target, who, expires FROM pillarbox.blocked_senders")
        assert (row.target, row.who, row.expires) == (factory.queue(legal)[0].senderdomain, "olga", None)


async def test_a_block_and_its_end_are_undone_by_whom_they_are_of_and_by_operators(
    system: System, factory: Factory
) -> None:
    [held] = hold(factory, "spam")
    form = {"reason": "phishing", "for": ""}
    factory.sql("INSERT INTO pillarbox.blocked_senders VALUES ('old.example', 'over', 'rita', now(), now())")

    def blocked() -> list[Any]:
        return factory.sql("SELECT * FROM pillarbox.blocked_senders")

    def last() -> Any:
        return factory.sql("SELECT id, verb, who, reason, done, undone FROM pillarbox.audit ORDER BY id DESC LIMIT 1")[
            0
        ]

    async with Api(system, await system.httpd(smtpd=shown_rule())) as api:
        rita, mary = await signed_in(api, "rita", "reviewer"), await signed_in(api, "mary", "reviewer")
        olga = await signed_in(api, "olga", "operator")

        async def undone(client: Any, id_: int) -> int:
            answer = await post(client, "/console/account", f"/console/decided/{id_}/undo", **{"from": "audit"})
            status: int = answer.status_code
            return status

        path = f"/console/held/{held}/block"
        await post(rita, path, path, **form)
        made, [row] = last(), blocked()
        assert tuple(made)[1:5] == ("block add", "rita", "phishing", 1)
        assert (await undone(mary, made.id), blocked()) == (403, [row])
        assert (await undone(rita, made.id), blocked()) == (303, [])
        await post(rita, path, path, **form)
        [row] = blocked()
        await post(rita, "/console/blocked", "/console/blocked/end", target=row.target)
        assert (last().verb, blocked()) == ("block remove", [])
        assert (await undone(olga, last().id), blocked()) == (303, [row])
        # What is blocked already is not changed, so that an undo takes nothing away.
        await post(rita, path, path, **form)
        assert (last().verb, last().done, blocked()) == ("block add", 0, [row])


async def test_without_a_rule_in_smtpd_yaml_pages_say_so_instead_of_promising(api: Api, factory: Factory) -> None:
    [held] = hold(factory, "spam")
    client = await signed_in(api, "rita", "reviewer")
    for path in (f"/console/held/{held}/block", "/console/blocked"):
        page = (await client.get(path)).text
        assert "has no rule that asks for blocked senders" in page
        assert "pillarbox.sender_blocked(%(value)s)" in page
        assert 'name="reason"' not in page
