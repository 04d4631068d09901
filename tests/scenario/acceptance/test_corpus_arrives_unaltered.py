"""test_corpus_arrives_unaltered — real mail, also malformed mail, arrives octet for octet

Owns: the proof that nothing between the two ends changes content, where smtpd.yaml removes no field.
See: tests/fixtures/corpus.py for where the messages are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo.sample_mail import Sample
from shared.mail.submitted import as_submitted

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


async def test_real_mail_arrives_octet_for_octet(system: System, books: Books, corpus: list[Path]) -> None:
    phases: dict[str, object] = {"data": {"dropheaders": []}}  # most of these messages have a Return-Path
    server = {"id": "mx", "hostname": "mx.test", "listeners": [{"port": 0}], "phases": phases}
    smtpd = await system.smtpd(servers=[server])
    await system.worker(books.sink.port)
    samples = [
        Sample(f"n-{number:06}@origin.example", (f"r-{number:06}@elm.example",), as_submitted(file.read_bytes()))
        for number, file in enumerate(corpus)
    ]
    await books.submit(smtpd, samples)
    assert books.refusals() == set()
    await books.until_arrived(len(corpus))
    await system.until_finished()
    count = len(corpus)
    assert str(books.account()) == f"accepted={count} delivered={count} lost=0 duplicated=0 altered=0"
