"""test_mistakes — each mistake of a new operator is answered by one line, with an exit status, and nothing else happens

Owns: typing the rows of table.py, in one folder and one database for all.
See: tests/scenario/acceptance/test_bad_start.py for daemons and files that must not remain.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from shared.postgres.database import unusable
from tests.fixtures.peers.certificates import Authority
from tests.fixtures.waiting import PATIENCE
from tests.integration.mistakes.table import OF_APPLICATIONS, OF_THE_DATABASE, TYPED, WRITTEN, Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.servers.postgres import ServerUnderTest

_PROGRAMS: Final = {
    "pillarbox": "scripts.cli",
    "smtpd": "smtpd",
    "queued": "queued",
    "httpd": "httpd",
    "collect": "collect",
}
_PASSWORD: Final = "only-for-tests"  # noqa: S105 - of roles that live as long as this module
_USUAL: Final = {
    "config/smtpd.yaml": "ENVIRONMENT\nservers: [{listeners: [{port: 0}]}]\n",
    "config/queued.yaml": (
        "ENVIRONMENT\nworkers: [{id: all, where: 'true'}]\ntransports: [{id: default}, {id: slow}]\n"
    ),
}


class Place:
    """A folder and a database with the usual files; `words`: the values of the words in capitals in the table."""

    def __init__(self, folder: Path, uri: str, words: dict[str, str]) -> None:
        self.folder, self.uri = folder, uri
        self.words = words | {"ENVIRONMENT": f"environment: {{log: {{level: error}}, database: {{uri: '{uri}'}}}}"}
        (folder / "config").mkdir()
        (folder / "open").mkdir()
        (folder / "open").chmod(0o777)

    def filled(self, text: str) -> str:
        """The text with the values of its words."""
        return re.sub(r"\b[A-Z]{4,}\b", lambda word: self.words.get(word[0], word[0]), text)

    def type(self, mistake: Mistake) -> subprocess.CompletedProcess[str]:
        """Write the files, run the command until it ends by itself."""
        for path, text in {**_USUAL, **mistake.files}.items():
            if text is None:
                (self.folder / path).unlink(missing_ok=True)
            else:
                (self.folder / path).write_text(self.filled(text), encoding="utf-8")
        program, *arguments = shlex.split(mistake.typed)
        return subprocess.run(
            (sys.executable, "-m", _PROGRAMS[program], *arguments),
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )


@pytest.fixture(scope="module")
def place(server: ServerUnderTest, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The folder and the database of all rows."""
    folder = tmp_path_factory.mktemp("mistakes")
    ended = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
    authority = Authority(folder)
    authority.issue("mx.example.com", stem="good")
    authority.ending("mx.example.com", ended, not_before=ended - timedelta(days=9), stem="ended")
    roles = {word: f"test_{word.lower()}_{uuid.uuid4().hex[:12]}" for word in ("STRANGER", "GUEST", "WORKER", "TAKER")}
    with (
        server.fresh_database(template=template_database) as uri,
        server.fresh_database() as empty,
        socket.create_server(("127.0.0.1", 0)) as taken,
        psycopg.connect(server.administrator_of(_name(uri)), autocommit=True) as administrator,
    ):
        for word, role in roles.items():
            login = "NOLOGIN" if word == "STRANGER" else "LOGIN"
            group = {"WORKER": "IN ROLE pillarbox_queued", "TAKER": "IN ROLE pillarbox_smtpd"}.get(word, "")
            administrator.execute(f"CREATE ROLE {role} {login} PASSWORD '{_PASSWORD}' {group}".encode())
        administrator.execute("INSERT INTO pillarbox.transports VALUES ('default', now()), ('slow', now())")
        uris = {
            word: make_conninfo(uri, user=roles[role], password=_PASSWORD)
            for word, role in (("NOLOGIN", "STRANGER"), ("NORIGHTS", "GUEST"), ("QUEUED", "WORKER"), ("SMTPD", "TAKER"))
        }
        yield Place(
            folder,
            uri,
            {
                **roles,
                **uris,
                "NODATABASE": make_conninfo(uri, dbname="nosuch"),
                "EMPTY": empty,
                "DATABASE": _name(uri),
                "TAKEN": str(taken.getsockname()[1]),
                "ENDED": f"{ended:%Y-%m-%d %H:%M:%SZ}",
            },
        )
        for role in roles.values():
            administrator.execute(f"DROP ROLE {role}".encode())


@pytest.mark.parametrize("mistake", [*TYPED, *WRITTEN, *OF_THE_DATABASE], ids=lambda mistake: mistake.name)
def test_a_mistake_is_answered_by_one_line(place: Place, mistake: Mistake) -> None:
    done = place.type(mistake)
    [line] = done.stderr.splitlines()
    expected = place.filled(mistake.said)
    assert re.fullmatch(re.escape(expected).replace("…", ".*"), line), f"{line}\n{expected}"
    assert (done.returncode, done.stdout) == (mistake.status, "")


@pytest.mark.parametrize(("typed", "said"), OF_APPLICATIONS.items(), ids=lambda text: text[:60])
def test_an_application_s_mistake_is_answered_by_one_line(place: Place, typed: str, said: str) -> None:
    with psycopg.connect(place.uri) as connection:
        connection.execute("SELECT pillarbox.enqueue('a@example.com', ARRAY['b@example.com'], 'x')")
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(typed.encode())
        connection.rollback()
    assert refused.value.diag.message_primary == said


def test_more_than_25_mistakes_with_unique_names_are_listed() -> None:
    names = [mistake.name for mistake in (*TYPED, *WRITTEN, *OF_THE_DATABASE)]
    assert len(names) == len(set(names)) > 25


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (140_019, "PostgreSQL 14 is too old; allowed: PostgreSQL 15 or newer"),
        (90_624, "PostgreSQL 9 is too old; allowed: PostgreSQL 15 or newer"),
        (150_000, None),
        (180_001, None),
    ],
)
def test_a_server_that_is_too_old_is_refused(version: int, why: str | None) -> None:
    assert unusable(version, "UTF8", "mail") == why


def _name(uri: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(uri)["dbname"])
