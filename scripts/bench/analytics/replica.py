"""replica — a hot standby of the run's own server, to export from

Owns: the copy of the server's data, and the process that follows it.
Guarantees: it listens on a socket only, and ends with the block. Replication is asynchronous: mail waits for nothing.
See: pg_basebackup(1).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from scripts.analytics.source import copying
from shared.errors import DatabaseUnavailable
from shared.postgres.embedded import embedded
from shared.postgres.embedded.account import choose_account

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE: Final = 60.0  # seconds until it answers


@contextmanager
def following(uri: str, folder: Path) -> Iterator[str]:
    """A replica of the embedded server for the block; its URI."""
    folder = folder.absolute()  # the server runs elsewhere, and a host in a URI is a folder only where it begins with /
    binaries, data, socket = embedded._find_binaries(), folder / "data", folder / "socket"  # noqa: SLF001 - the only way
    shutil.rmtree(folder, ignore_errors=True)
    socket.mkdir(parents=True)
    words = [str(binaries / "pg_basebackup"), "-d", uri, "-D", str(data), "-R", "-c", "fast"]
    subprocess.run(words, check=True, capture_output=True)  # noqa: S603 - the server's own program
    account = choose_account(folder)
    if account:
        for path in (folder, socket, data, *data.rglob("*")):
            os.chown(path, account.uid, account.gid)
    with (folder / "postgres.log").open("wb") as log:
        running = subprocess.Popen(  # noqa: S603 - as above
            [str(binaries / "postgres"), "-D", str(data), "-c", f"unix_socket_directories={socket}"],
            cwd="/",
            stdout=log,
            stderr=log,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
        )
    try:
        parts = urlsplit(uri)  # of an embedded server: postgresql:///NAME?host=…&port=…&user=…
        found = f"postgresql://{parts.path}?{urlencode(dict(parse_qsl(parts.query)) | {'host': str(socket)})}"
        _answers(found)
        yield found
    finally:
        running.send_signal(signal.SIGQUIT)
        running.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(uri: str) -> None:
    deadline = monotonic() + _PATIENCE
    while True:
        try:
            with copying.session(uri):
                return
        except DatabaseUnavailable:
            if monotonic() > deadline:
                raise
            sleep(0.1)
