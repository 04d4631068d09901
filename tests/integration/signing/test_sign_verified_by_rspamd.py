"""test_sign_verified_by_rspamd — rspamd, which uses OpenSSL, verifies the signatures of both algorithms

See: tests/integration/signing/test_sign_verified_elsewhere.py for Mail::DKIM, which knows RSA only; RFC 8463 (Ed25519).
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from queued.signing.keys import zone_strings
from queued.values import Body
from tests.fixtures.daemons.signing import MESSAGE, claimed, key, key_files, rule, signer
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.peers.rspamd import verifying_rspamd

if TYPE_CHECKING:
    from pathlib import Path


def symbols(url: str, message: bytes) -> dict[str, Any]:
    """The symbols that rspamd finds."""
    with urlopen(Request(f"{url}/checkv2", data=message), timeout=30) as answer:  # noqa: S310 - our own server
        found: dict[str, Any] = json.load(answer)["symbols"]
    return found


async def test_rspamd_verifies_both_algorithms(tmp_path: Path) -> None:
    by = signer(rule(key_files(tmp_path, "rsa", "ed")))
    signed = await by.sign(Body(MESSAGE, smtputf8=False), claimed(now=datetime.now(UTC)))
    message = signed.fields + MESSAGE
    zone = {(f"{name}._domainkey.origin.example", "TXT"): [zone_strings(key(name).record())] for name in ("rsa", "ed")}
    folder = tmp_path / "rspamd"
    folder.mkdir()
    async with FakeDns(zone) as dns:
        filtering = verifying_rspamd(folder, dns.where)
        url = await asyncio.to_thread(filtering.__enter__)
        try:
            found = await asyncio.to_thread(symbols, url, message)
            assert sorted(found["R_DKIM_ALLOW"]["options"]) == ["origin.example:s=ed", "origin.example:s=rsa"]
            spoiled = await asyncio.to_thread(symbols, url, message + b"more\r\n")
            assert sorted(spoiled["R_DKIM_REJECT"]["options"]) == ["origin.example:s=ed", "origin.example:s=rsa"]
        finally:
            await asyncio.to_thread(filtering.__exit__, None, None, None)
