"""test_quickstart — docs/quickstart.md works as written, from `make install` on, with Postfix as the smart host

Guarantees: the mail of the five lines reaches Postfix after a login under TLS that proves Postfix's name, and whoever
    follows the link that `make up` prints sees in the console that it was delivered. PostgreSQL is the embedded one, as
    on the page.
"""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import httpx

from tests.fixtures.daemons.console import PASSWORD as CHOSEN
from tests.fixtures.pages.blocks import blocks
from tests.fixtures.pages.walking import DOCS, ROOT, Reader, Walk
from tests.fixtures.peers.dovecot import PASSWORD
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.postfix import relaying_after_login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from tests.fixtures.pages.running import Running
    from tests.fixtures.peers.certificates import Authority
    from tests.fixtures.peers.dovecot import Dovecot
    from tests.fixtures.peers.postfix import Postfix

_READY = 'printf "%s demo" "$(cat pyproject.toml constraints.txt | cksum)"'  # as scripts/dev/bootstrap.sh has it


@contextmanager
def fresh_clone(database: str, reader: Reader) -> Iterator[Walk]:
    """A reader in a checkout whose packages are installed, but whose command is not on PATH."""
    # The path is short, for PostgreSQL's socket.
    with TemporaryDirectory(prefix="pillarbox-") as name, Walk(Path(name) / "q", database, reader) as walk:
        for each in ("Makefile", "pyproject.toml", "constraints.txt", "scripts"):
            (walk.folder / each).symlink_to(ROOT / each)
        venv = walk.folder / ".venv"
        venv.unlink()
        venv.mkdir()
        (venv / "bin").symlink_to(ROOT / ".venv" / "bin")
        (venv / ".checkout").write_text(str(walk.folder.resolve()))
        ready = subprocess.run(("/bin/sh", "-c", _READY), cwd=walk.folder, capture_output=True, text=True, check=True)
        (venv / ".ready-demo").write_text(ready.stdout)
        del walk.environment["PILLARBOX_DATABASE_URI"]
        walk.environment["PREFIX"] = str(walk.local)  # the tests run as root, whose command is everybody's
        (walk.local / "bin" / "pillarbox").unlink()
        yield walk


async def in_the_console(up: Running, condition: str) -> str:
    """What History shows for this condition, after a sign-in with the link that `up` printed."""
    link = up.until(r"choose a password for \S+ here, once:\s+(http://\S+)")[1]
    place, _, token = link.partition("/console/link?token=")
    async with httpx.AsyncClient(base_url=place, headers={"Origin": place}, follow_redirects=True) as client:
        assert (await client.get(link)).status_code == 200
        form = {"link": token, "password": CHOSEN, "again": CHOSEN}
        assert (await client.post("/console/link", data=form)).status_code == 200
        for page in ("now", "queue"):
            assert (await client.get(f"/console/{page}")).status_code == 200
        shown = await client.get("/console/history", params={"condition": condition})
        assert shown.status_code == 200
        return shown.text


def test_the_way_from_a_clone_to_the_first_mail_has_five_lines() -> None:
    assert len(blocks(DOCS / "quickstart.md")[0].commands()) == 5


async def test_the_page_works_as_written(
    database: str,
    authority: Authority,
    swaks: Path,
    postfix: Callable[..., AbstractAsyncContextManager[Postfix]],
    dovecot: Callable[..., AbstractAsyncContextManager[Dovecot]],
) -> None:
    pair = authority.issue("localhost")
    async with (
        dovecot("plain") as passwords,
        postfix(**relaying_after_login(pair, passwords.auth)) as peer,
    ):
        port = free_port()
        reader = Reader(
            values={
                "smtp.example.com:587 --user apikey": f"localhost:{peer.port} --user alice",
                "127.0.0.1:2525": f"127.0.0.1:{port}",
            },
            before=lambda walk: walk.configure(
                "smtpd.yaml", {"servers": [{"id": "default", "hostname": "mx.test", "listeners": [{"port": port}]}]}
            ),
            typed={"pillarbox relay smtp.example.com:587": f"{PASSWORD}\n"},
            beside={"make up": "queued-456: "},
            programs={"swaks": f'exec {swaks} "$@"'},
            statuses={"pillarbox doctor": (1,)},  # it cannot reach smtp.example.com
        )
        with fresh_clone(database, reader) as walk:
            walk.environment["SSL_CERT_FILE"] = str(authority.file)  # one of the system's authorities
            await asyncio.to_thread(walk.page, "quickstart.md")
            shown = await in_the_console(walk.beside["make up"], "recipient=you@example.org result=success")
            assert "<bdi>you@example.org</bdi>" in shown
        line = await peer.until_said("sasl_username=alice")
        assert "sasl_method=PLAIN" in line
        await peer.until_said("to=<you@example.org>, relay=none")
        assert "Queued as" in walk.output["swaks --server 127.0.0.1:2525 --from me@example.com --to you@example.org"]
