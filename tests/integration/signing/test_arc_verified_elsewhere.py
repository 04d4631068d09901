"""test_arc_verified_elsewhere — Mail::DKIM, which shares no code with ours, verifies our ARC chains

See: Mail::DKIM::ARC::Verifier (RFC 8617 in Perl), of the package that scripts/dev/peers.py fetches
"""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from queued.signing.keys import zone_strings
from queued.values import Body
from scripts.dev.peers import how_to_get
from tests.fixtures.daemons.signing import MESSAGE, arc, claimed, key, key_files, rule, signer
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from queued.signing.sign import Signer

_VERIFIER = """
use Mail::DKIM::ARC::Verifier;
my $arc = Mail::DKIM::ARC::Verifier->new();
while (<STDIN>) { $arc->PRINT($_); }
$arc->CLOSE;
print $arc->result_detail, "\\n";
"""
PASSED = b"Authentication-Results: mx.relay.example; arc=pass; dkim=pass\r\n"
NONE = b"Authentication-Results: mx.relay.example; arc=none; dkim=pass header.d=origin.example\r\n"


async def judged(zone: FakeDns, message: bytes) -> str:
    """The verdict of Mail::DKIM on the chain."""
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip(how_to_get("dkimproxy-verify"))
    environ = {**os.environ, "RES_NAMESERVERS": "127.0.0.1", "RES_OPTIONS": f"port:{zone.port} retrans:1 retry:2"}
    pipe = asyncio.subprocess.PIPE
    verifier = await asyncio.create_subprocess_exec(
        perl, "-e", _VERIFIER, stdin=pipe, stdout=pipe, stderr=pipe, env=environ
    )
    async with asyncio.timeout(PATIENCE):
        said, complaint = await verifier.communicate(message)
    if b"Can't locate Mail/DKIM" in complaint:
        pytest.skip(how_to_get("dkimproxy-verify"))
    assert verifier.returncode == 0, complaint.decode()
    return said.decode().partition(" ")[0].strip()


async def sealed(by: Signer, content: bytes) -> bytes:
    return (await by.sign(Body(content, smtputf8=False), claimed())).fields + content


async def test_mail_dkim_verifies_our_chains(tmp_path: Path) -> None:
    by = signer(rule(key_files(tmp_path, "rsa")), arc=arc(tmp_path))
    record = [zone_strings(key("rsa").record())]
    zone = {(f"rsa._domainkey.{domain}", "TXT"): record for domain in ("relay.example", "origin.example")}
    async with FakeDns(zone) as dns:
        once = await sealed(by, NONE + MESSAGE)
        assert await judged(dns, once) == "pass"
        twice = await sealed(by, PASSED + once)
        assert await judged(dns, twice) == "pass"
        assert await judged(dns, b"Subject: another\r\n" + twice) == "fail"
        assert await judged(dns, twice + b"more\r\n") == "fail"
