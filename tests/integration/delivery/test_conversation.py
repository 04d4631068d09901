"""test_conversation — a failed try keeps what was said where its transport says so, and never a secret or content

Owns: proofs about queued/smtp/conversation.py, from the hosts' replies to the attempt's row and `queue trace`.
See: tests/integration/delivery/test_smtp_auth.py for how we log in.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from queued.smtp import conversation
from queued.values import Spoken
from tests.fixtures.daemons.routed import routing, sinks
from tests.fixtures.database.results import DEFERRED, DELIVERED, FAILED, claim, finished, running_recorder
from tests.fixtures.peers.scripted_peer import CLOSE, CONTENT, HANDSHAKE, HANG, PIPELINING, PLAIN, ScriptedPeer
from tests.fixtures.peers.tls_peer import server_context

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.operating import Pillarbox
    from tests.fixtures.peers.certificates import Authority

SECRET = "correct horse, battery staple"  # noqa: S105 - of tests
TOKEN = "ya29.a0-token_of~tests+/=="  # noqa: S105 - of tests
REFUSED = ("MAIL", b"250 2.1.0 Ok\r\n", "RCPT", b"550 5.1.1 Nobody\r\n", "QUIT", b"221 Bye\r\n")
BODY = ("MAIL", b"250 Ok\r\n", "RCPT", b"250 Ok\r\n", "DATA", b"354 Go\r\n", CONTENT, b"451 4.3.0 Later\r\n")


def to(port: int, **settings: Any) -> dict[str, Any]:
    connection = {"mode": "smarthost", "server": "127.0.0.1", "port": port}
    return {"connection": connection, "keepconversation": True, **settings}


async def test_a_refused_recipient_has_commands_and_replies_in_their_order() -> None:
    replies = b"250 2.1.0 Ok\r\n550 5.1.1 Nobody\r\n554 5.5.1 None\r\n"
    for script in ((*PLAIN, *REFUSED), (*PIPELINING, "MAIL", "RCPT", "DATA", replies, "QUIT", b"221 Bye\r\n")):
        async with ScriptedPeer(*script) as peer, routing({}, **to(peer.port)) as routed:
            result = await routed.send_one("bob@example.test")
        lines = (result.spoken.conversation or "").splitlines()
        assert lines[0] == f"* to 127.0.0.1:{peer.port}"
        assert lines[1] == "< 220 peer.example"
        assert lines[2].startswith("> EHLO ")
        at = next(number for number, line in enumerate(lines) if line.startswith("> MAIL FROM:<alice@"))
        assert lines[at + 1] == "< 250 2.1.0 Ok"
        assert lines[at + 2].startswith("> RCPT TO:<bob@example.test>")
        assert lines[at + 3] == "< 550 5.1.1 Nobody"


async def test_delivered_mail_and_other_transports_keep_nothing() -> None:
    async with sinks("1") as (sink,), routing({}, **to(sink.port)) as routed:
        assert (await routed.send_one("bob@example.test")).spoken.conversation is None
    async with ScriptedPeer(*PLAIN, *REFUSED) as peer, routing({}, **to(peer.port, keepconversation=False)) as routed:
        assert (await routed.send_one("bob@example.test")).spoken.conversation is None


async def test_content_is_a_number_of_octets() -> None:
    async with ScriptedPeer(*PLAIN, *BODY, HANG) as peer, routing({}, **to(peer.port)) as routed:
        result = await routed.send_one("bob@example.test")
    spoken = result.spoken.conversation or ""
    content = b"\r\n".join(peer.heard[peer.heard.index(b"DATA") + 1 :])
    assert re.search(r"< 354 Go\n\* content, \d+ octets\n< 451 4.3.0 Later$", spoken)
    for line in filter(None, content.split(b"\r\n")):
        assert len(line) < 4 or line.decode() not in spoken


async def test_every_host_that_was_tried_is_told_with_its_fault() -> None:
    zone = {("example.test", "MX"): ["10 mx1.test.", "20 mx2.test."]}
    zone |= {("mx1.test", "A"): ["127.0.0.1"], ("mx2.test", "A"): ["127.0.0.2"]}
    async with ScriptedPeer(b"220 ready\r\n", CLOSE) as peer:
        settings: dict[str, Any] = {"connection": {"port": peer.port}, "keepconversation": True}
        async with routing(zone, **settings) as routed:
            result = await routed.send_one("bob@example.test")
    spoken = result.spoken.conversation or ""
    assert f"* to mx1.test[127.0.0.1]:{peer.port}\n< 220 ready\n> EHLO " in spoken
    assert f"* to mx2.test[127.0.0.2]:{peer.port}\n* connect to 127.0.0.2:{peer.port}" in spoken
    assert "* peer hung up" in spoken or "* connection lost" in spoken


@pytest.mark.parametrize(
    ("mechanism", "auth", "answers"),
    [
        ("PLAIN", {"password": {"file": "secret"}}, (b"235 in {}\r\n",)),
        (
            "LOGIN",
            {"password": {"file": "secret"}},
            (b"334 VXNlcm5hbWU6\r\n", "", b"334 UGFzc3dvcmQ6\r\n", "", b"235 in {}\r\n"),
        ),
        ("XOAUTH2", {"token": {"file": "secret"}}, (b"235 in {}\r\n",)),
    ],
)
async def test_no_secret_of_a_login_is_kept_even_if_the_host_says_it_back(
    authority: Authority, tmp_path: Path, mechanism: str, auth: dict[str, Any], answers: tuple[bytes | str, ...]
) -> None:
    secret = TOKEN if mechanism == "XOAUTH2" else SECRET
    file = tmp_path / "secret"
    file.write_text(secret)
    file.chmod(0o600)
    back = secret.encode() + b" " + b64encode(secret.encode())
    said = [answer.replace(b"{}", back) if isinstance(answer, bytes) else answer for answer in answers]
    script = (
        *(*PLAIN[:2], b"250-peer.example\r\n250 STARTTLS\r\n", "STARTTLS", b"220 go\r\n", HANDSHAKE, "EHLO"),
        *(b"250-peer.example\r\n250 AUTH " + mechanism.encode() + b"\r\n", f"AUTH {mechanism}", *said),
        *("MAIL", b"550 5.7.1 you are " + back + b"\r\n", "QUIT", b"221 Bye\r\n"),
    )
    login = {"user": "alice", "mechanisms": [mechanism], **{key: {"file": str(file)} for key in auth}}
    async with ScriptedPeer(*script, later=server_context(authority.issue("127.0.0.1"))) as peer:
        settings = to(peer.port, tls={"ca": str(authority.file)})
        settings["connection"]["auth"] = login
        async with routing({}, **settings) as routed:
            result = await routed.send_one("bob@example.test")
    spoken = result.spoken.conversation or ""
    assert "* login, of which only the codes of the replies are kept\n" in spoken
    assert "\n< 235\n> MAIL FROM:" in spoken
    assert "< 550 5.7.1 you are " in spoken
    assert "> AUTH" not in spoken
    for part in (secret, secret[:8], b64encode(secret.encode()).decode(), b64encode(b"\0alice\0").decode()[:8]):
        assert part not in spoken


def test_a_long_conversation_keeps_its_beginning_and_its_end() -> None:
    made = conversation.begin(kept=True)
    assert made is not None
    conversation.said(b"EHLO us.example\r\n")
    for number in range(10_000):
        conversation.noted(f"line {number} \x1b[31m\0\ud800" + "x" * number)
    spoken = str(made)
    assert len(spoken) <= 9000
    assert spoken.startswith("> EHLO us.example\n* line 0 ")
    assert "lines left out" in spoken
    assert "\n* line 9999 " in spoken
    assert not set(spoken) & {"\x1b", "\0", "\ud800"}
    assert conversation.begin(kept=False) is None
    conversation.noted("nobody keeps this")
    assert "nobody" not in str(made)


async def test_a_trace_shows_the_conversation_of_each_failed_try(factory: Factory, pillarbox: Pillarbox) -> None:
    ids = factory.rows(4)
    spoken = "* to mx.example:25\n< 220 ready\n> EHLO us.example\n< 421 4.3.2 Later"
    async with running_recorder(factory.uri) as recorder:
        taken = sorted(await claim(factory.uri), key=lambda c: c.id)
        outcomes = [(DELIVERED, "success"), (FAILED, "failed"), (DEFERRED, None), (DEFERRED, "expired")]
        for c, (outcome, result) in zip(taken, outcomes, strict=True):
            kept = None if outcome is DELIVERED else spoken
            made = finished(c, outcome, result or "failed")._replace(spoken=Spoken(conversation=kept))
            recorder.add([made if result else made._replace(result=None, next_retry=c.now())])
        await recorder.drained()
    assert [row.conversation for row in sorted(factory.attempts(), key=lambda row: row.queue__id)] == [
        None,
        *[spoken] * 3,
    ]
    lines = await asyncio.to_thread(pillarbox.lines, "trace", str(ids[0]))
    with_it = [(line["id"], line["event"]) for line in lines if line["conversation"] == spoken]
    assert with_it == [(ids[1], "failed"), (ids[2], "deferred"), (ids[3], "deferred")]
    shown = (await asyncio.to_thread(pillarbox.run, "trace", str(ids[0]))).splitlines()
    assert [line.split(maxsplit=3)[2:] for line in shown].count(["said", "> EHLO us.example"]) == 3
