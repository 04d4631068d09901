"""test_signed_mail_verifies_at_the_receiver — submitted mail is delivered signed, and its receiver can verify it

Owns: signing with real daemons: the rule in queued.yaml, keys by `pillarbox dkim generate`, both algorithms.
See: queued/signing/sign.py; docs/how-to/deliver/sign-with-dkim.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import dkim

from scripts import cli
from scripts.demo.sample_mail import Sample
from tests.fixtures.daemons.system import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

HEADER = b"From: Ann <ann@origin.example>\r\nTo: bob@elm.example\r\nSubject: %s\r\n\r\n"
BODIES = {
    b"small": b"Hello.\r\n.\r\n..two dots\r\n\r\n\r\n",
    b"8bit": "Grüße  \t\r\n".encode() * 5,
    b"large": b"A line of a large message, of which there are many.\r\n" * 20_000,
    b"long": b"w" * 900 + b" " + b"w" * 900 + b"\r\n",  # more than one line may have, so it leaves as two
}


async def test_delivered_mail_has_signatures_that_verify(
    system: System, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = {}
    for selector, more in (("rsa", []), ("ed", ["--ed25519"])):
        assert generate(selector, tmp_path, *more) == 0
        line = capsys.readouterr().out.splitlines()[-1]
        assert line.startswith(f"{selector}._domainkey.origin.example. IN TXT ( ")
        records[selector] = "".join(re.findall(r'"([^"]*)"', line)).encode()
        assert (tmp_path / f"origin.example.{selector}.pem").stat().st_mode & 0o777 == 0o600
    keys = [{"selector": each, "file": str(tmp_path / f"origin.example.{each}.pem")} for each in records]

    smtpd = await system.smtpd()
    rules = [{"id": "ours", "senderdomain": ["origin.example"], "keys": keys}]
    worker = await system.worker(books.sink.port, signing={"rules": rules})
    samples = [
        Sample(f"n-{name.decode()}@bounces.example", ("a@elm.example", "b@elm.example"), content)
        for name, body in BODIES.items()
        if (content := HEADER % name + body)
    ]
    stranger = Sample(
        "n-x@bounces.example", ("a@elm.example",), b"From: x@other.example\r\nSubject: other\r\n\r\nhi\r\n"
    )
    await books.submit(smtpd, [*samples, stranger])
    await books.until_arrived(2 * len(samples) + 1)
    await system.until_finished()

    assert len(books.sink.received) == len(samples) + 1
    signed = {}
    for record in books.sink.received:
        assert record.content is not None
        signed[record.sender] = record.content
    assert b"DKIM-Signature" not in signed.pop(stranger.sender)
    for message in signed.values():
        assert message.count(b"DKIM-Signature: ") == 2
        for index in range(2):
            assert dkim.DKIM(message).verify(index, lambda name, timeout: records[name.decode().partition(".")[0]])
    for sample in samples:
        expected = sample.content.replace(b"w w", b"w\r\n w")
        assert signed[sample.sender].rstrip(b"\r\n").endswith(expected.rstrip(b"\r\n"))
    assert [event["selector"] for event in worker.said("sign.loaded")] == ["rsa", "ed"]
    assert worker.said("sign.failed") == []


def test_a_missing_key_is_one_line_at_start(tmp_path: Path, database: str) -> None:
    file = tmp_path / "queued.yaml"
    file.write_text(
        f"environment: {{database: {{uri: '{database}'}}, var: '{tmp_path}'}}\n"
        f"signing: {{rules: [{{id: a, senderdomain: ['*'], keys: [{{selector: s, file: '{tmp_path}/no.pem'}}]}}]}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "queued", "--config", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 78
    [line] = done.stderr.splitlines()
    assert line.endswith(f"signing.rules[0].keys[0].file: {tmp_path}/no.pem cannot be read: No such file or directory")


def generate(selector: str, folder: Path, *more: str) -> int:
    """`pillarbox dkim generate` for origin.example."""
    return cli.main(
        ["dkim", "generate", "--domain", "origin.example", "--selector", selector, "--out", str(folder), *more]
    )
