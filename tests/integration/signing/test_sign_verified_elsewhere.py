"""test_sign_verified_elsewhere — an independent verifier finds our key in DNS and verifies our signature

See: dkimproxy-verify(1) of Mail::DKIM, an implementation of RFC 6376 in Perl; scripts/dev/peers.py, which fetches it.
Bugs: Debian's Mail::DKIM knows no Ed25519; it says of that signature only that the algorithm is unknown.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING

from queued.signing.keys import zone_strings
from queued.values import Body
from shared.mail.submitted import as_submitted
from tests.fixtures.daemons.signing import MESSAGE, claimed, key, key_files, rule, signer
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from queued.signing.sign import Signer


# DomainKeys came before DKIM (RFC 4870), and the verifier judges both.
_SIGNATURE = re.compile(rb"(?im)^(?:dkim|domainkey)-signature:")


async def judged(program: Path, zone: FakeDns, message: bytes) -> list[str]:
    """The verdict on each signature."""
    environ = {**os.environ, "RES_NAMESERVERS": "127.0.0.1", "RES_OPTIONS": f"port:{zone.port} retrans:1 retry:2"}
    pipe = asyncio.subprocess.PIPE
    verifier = await asyncio.create_subprocess_exec(program, stdin=pipe, stdout=pipe, stderr=pipe, env=environ)
    async with asyncio.timeout(PATIENCE):
        said, complaint = await verifier.communicate(message)
    assert verifier.returncode == 0, complaint.decode()
    return re.findall(r"(?m)^verify result: (.*)$", said.decode())


async def signed(by: Signer, content: bytes) -> bytes:
    return (await by.sign(Body(content, smtputf8=False), claimed())).fields + content


async def test_mail_dkim_verifies_our_rsa_signature(dkimproxy_verify: Path, tmp_path: Path) -> None:
    by = signer(rule(key_files(tmp_path, "rsa")))
    message = await signed(by, MESSAGE)
    record = zone_strings(key("rsa").record())
    async with FakeDns({("rsa._domainkey.origin.example", "TXT"): [record]}) as zone:
        assert await judged(dkimproxy_verify, zone, message) == ["pass"]
        [spoiled] = await judged(dkimproxy_verify, zone, message + b"more\r\n")
        assert spoiled.startswith("fail")
        [added] = await judged(dkimproxy_verify, zone, b"Subject: another\r\n" + message)
        assert added.startswith("fail")


async def test_mail_dkim_verifies_real_mail(dkimproxy_verify: Path, tmp_path: Path, corpus: list[Path]) -> None:
    by = signer(rule(key_files(tmp_path, "rsa"), senderdomain=["*"], domain="origin.example"))
    record = zone_strings(key("rsa").record())
    unsigned = [file for file in corpus if _SIGNATURE.search(file.read_bytes()) is None]
    async with FakeDns({("rsa._domainkey.origin.example", "TXT"): [record]}) as zone:
        for file in unsigned[::8]:
            message = await signed(by, as_submitted(file.read_bytes()))
            if message.startswith(b"DKIM-Signature:"):
                assert await judged(dkimproxy_verify, zone, message) == ["pass"], file.name
