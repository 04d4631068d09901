"""test_dry_run_predicts_and_changes_nothing — `python -m queued --dry-run` predicts the deliveries of the worker

Owns: the command from the operator's view, text and JSON: route, hosts, source addresses, TLS, pacing, signatures,
    seal, retries, and faults.
See: queued/dry_run.py; docs/how-to/deliver/dry-run.md
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from scripts.demo.sample_mail import Sample
from tests.fixtures.daemons.routed import sinks
from tests.fixtures.daemons.signing import arc
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.peers.fake_dns import FakeDns

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

CONTENT = b"From: a@origin.example\r\nSubject: to many\r\n\r\nHello.\r\n"
ZONE = {
    ("one.test", "MX"): ["10 dead.test.", "20 mx1.test."],
    ("none.test", "MX"): ["0 ."],
    ("dead.test", "A"): ["127.0.0.9"],
    ("mx1.test", "A"): ["127.0.0.2"],
}
QUEUE = "SELECT md5(string_agg(q::text, '|' ORDER BY id)) FROM queue q"


async def dry_run(system: System, name: str, *arguments: str, settings: dict[str, Any]) -> tuple[int, str, str]:
    """Status, output and errors of the command."""
    path = system.folder / f"{name}-dry.yaml"
    environment = {"database": {"uri": system.uri}, "var": str(system.folder)}
    workers = [{"id": name, "where": "true"}]
    path.write_text(json.dumps({"environment": environment, "workers": workers, **settings}))
    command = (sys.executable, "-m", "queued", "--config", str(path), "--worker", name, "--dry-run", *arguments)
    running = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await running.communicate()
    assert running.returncode is not None
    return running.returncode, out.decode(), err.decode()


async def documents(system: System, *arguments: str, **settings: Any) -> dict[str, dict[str, Any]]:
    """The document of each recipient, by address."""
    before = await system.value(QUEUE)
    status, out, err = await dry_run(system, "dry", "--json", *arguments, settings=settings)
    assert (status, err) == (0, "")
    assert await system.value(QUEUE) == before
    assert await system.value("SELECT count(*) FROM attempts") == 0
    found = [json.loads(line) for line in out.splitlines()]
    return {each["recipient"]: each for each in found}


async def test_the_dry_run_shows_the_route_of_each_recipient(system: System, books: Books) -> None:
    async with FakeDns(ZONE) as dns, sinks("2") as (one,):
        smtpd = await system.smtpd()
        recipients = ("a@one.test", "b@none.test", "c@shop.example.test", "d@nowhere.test")
        await books.submit(smtpd, [Sample("n-000000@origin.example", recipients, CONTENT)])
        transport = {
            "hostname": "queued.test",
            "connection": {"mode": "mx", "port": one.port},
            "allow": {"private": True},
            "routes": {".example.test": f"127.0.0.4:{one.port}"},
            "tls": {"mode": "require"},
            "retry": {"intervals": ["7m"], "jitter": 0, "count": 3},
        }
        found = await documents(system, transports=[transport], routing={"dns": {"servers": [dns.where]}})
        assert one.connections == 0
        a, b, c, d = (found[each] for each in recipients)
        assert a["route"] == "MX of one.test"
        assert a["hosts"] == [f"dead.test[127.0.0.9]:{one.port}", f"mx1.test[127.0.0.2]:{one.port}"]
        assert a["tls"] == ["TLS or nothing (tls.mode require)"]
        assert a["pacing"] == "may go now"
        assert (a["try"], a["tries"], a["refused"]) == (1, 4, None)
        assert b["refused"].startswith("failed: 5.1.10 ")
        assert c["route"] == f"transports[default].routes[.example.test]: 127.0.0.4:{one.port}"
        assert c["hosts"] == [f"127.0.0.4:{one.port}"]
        assert d["refused"].startswith("failed: 5.1.2 ")


async def test_the_dry_run_shows_pacing_and_signing(system: System, books: Books, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    made = await asyncio.create_subprocess_exec("openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key))
    assert await made.wait() == 0
    key.chmod(0o600)
    smtpd = await system.smtpd()
    recipients = ("a@fast.test", "b@slow.test")
    await books.submit(smtpd, [Sample("n-000000@origin.example", recipients, CONTENT)])
    signing = {
        "rules": [
            {"id": "all", "senderdomain": ["origin.example"], "keys": [{"selector": "s1", "file": str(key)}]},
        ]
    }
    pacing = {"suspends": [{"match": {"destination": ["slow.test"]}, "reason": "they asked us to"}]}
    found = await documents(system, signing=signing, pacing=pacing)
    assert found["a@fast.test"]["signing"] == ["origin.example/s1 ed25519-sha256"]
    assert found["a@fast.test"]["pacing"] == "may go now"
    assert "they asked us to" in found["b@slow.test"]["pacing"]


async def test_the_dry_run_shows_the_source_address_and_the_arc_seal(
    system: System, books: Books, tmp_path: Path
) -> None:
    smtpd = await system.smtpd()
    checked = b"Authentication-Results: mx.relay.example; spf=pass\r\n" + CONTENT
    await books.submit(smtpd, [Sample("n-000000@origin.example", ("a@one.test", "b@six.test"), checked)])
    await books.submit(smtpd, [Sample("n-000001@origin.example", ("c@one.test",), CONTENT)])
    begins = datetime.now(UTC).date()
    sources = [
        {"address": "192.0.2.1", "hostname": "out1.test", "weight": 3},
        {"address": "192.0.2.2", "warmup": {"from": begins.isoformat(), "days": [50, 50]}},
        {"address": "192.0.2.3", "warmup": {"from": (begins + timedelta(days=7)).isoformat(), "days": [50]}},
    ]
    transport = {"hostname": "queued.test", "sources": sources, "routes": {"six.test": "[2001:db8::1]:25"}}
    found = await documents(system, transports=[transport], signing={"arc": arc(tmp_path)})
    a, b, c = (found[each] for each in ("a@one.test", "b@six.test", "c@one.test"))
    assert a["sources"] == [
        "192.0.2.1 as out1.test (weight 3)",
        "192.0.2.2 as queued.test (weight 1), at most 50 messages today (warm-up)",
    ]
    assert (b["sources"], b["nosource"]) == ([], "none for IPv6")
    assert (a["seal"], a["unsealed"]) == ("relay.example/rsa rsa-sha256, number 1, cv=none", None)
    assert (c["seal"], c["unsealed"]) == (None, "no Authentication-Results of mx.relay.example")


async def test_the_dry_run_shows_mail_that_would_expire(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await books.submit(smtpd, numbered(2, ["slow.test"]))
    await system.rows("UPDATE queue SET ts = ts - interval '6 days' WHERE recipientlocalpart = '000000.r'")
    pacing = {"suspends": [{"match": {"destination": ["slow.test"]}, "reason": "they asked us to"}]}
    found = await documents(system, pacing=pacing)
    assert found["000000.r@slow.test"]["pacing"] == "would be given up: suspended: they asked us to"
    assert found["000001.r@slow.test"]["pacing"] == "waits 600 s: suspended: they asked us to"


async def test_the_text_form_has_one_block_for_each_requested_recipient(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await books.submit(smtpd, numbered(3))
    status, out, err = await dry_run(system, "dry", "2", settings={})
    assert (status, err) == (0, "")
    blocks = out.strip().split("\n\n")
    assert len(blocks) == 2
    assert re.match(r"1  (\d{6})\.r@[a-z]+\.example from n-\1@origin\.example, ", blocks[0])  # sent side by side
    lines = dict(line.split(maxsplit=1) for line in blocks[0].splitlines()[1:])
    assert lines["route"] == "transports[default].connection.server"
    assert lines["hosts"] == "127.0.0.1:25"
    assert lines["source"] == "the system chooses"
    assert lines["signing"] == "none: no signing rule"
    assert lines["deferred"].startswith("would be tried again at ")


async def test_an_unknown_transport_and_an_empty_queue_are_reported(system: System, books: Books) -> None:
    status, out, _ = await dry_run(system, "dry", settings={})
    assert (status, out) == (0, "no mail is due for worker dry with WHERE true\n")
    smtpd = await system.smtpd()
    await books.submit(smtpd, numbered(1))
    await system.rows("UPDATE queue SET transportid = 'gone'")
    [document] = (await documents(system)).values()
    assert document["refused"] == 'transport "gone" does not exist in queued.yaml, which has default; it would wait'


async def test_claimed_recipients_and_those_not_due_are_left_out(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await books.submit(smtpd, numbered(3))
    await system.rows("UPDATE queue SET next_retry = now() + interval '1 hour' WHERE recipientlocalpart = '000000.r'")
    await system.rows(
        "UPDATE queue SET token = 1, worker = 'w', lease_until = now() + interval '1 hour' "
        "WHERE recipientlocalpart = '000001.r'"
    )
    assert [each.partition(".")[0] for each in await documents(system)] == ["000002"]


async def test_an_invalid_number_is_refused(system: System) -> None:
    status, _, err = await dry_run(system, "dry", "0", settings={})
    assert status == 2
    assert '"0" is not a number of recipients; allowed: 1 or more' in err
