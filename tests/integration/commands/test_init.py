"""test_init — `pillarbox init` writes a configuration that the daemons use at once

Owns: proofs about scripts/init/.
See: docs/how-to/start/set-up-a-host.md; tests/package/test_wheel.py, for the same from an installed wheel.
"""

from __future__ import annotations

import io
import json
import os
import pty
import shlex
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509

from queued.signing.keys import read_key
from scripts import cli
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

HOST = ("--hostname", "mail.example.com")


@pytest.fixture(autouse=True)
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal: the password comes from a pipe."""
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))


def init(folder: Path, *words: str) -> int:
    """The command."""
    return cli.main(["init", str(folder), *words])


def made(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> dict[str, Any]:
    """What it says it made."""
    capsys.readouterr()
    assert init(folder, *words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_host_that_delivers_by_mx_signs_and_publishes(
    database: str, factory: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "etc"
    words = (*HOST, "--direct", "--domain", "example.com", "--domain", "example.org", "--database", database)
    done = made(capsys, folder, *words, "--admin", "ann")
    assert (done["admin"], done["fault"]) == ("ann", None)
    assert [tuple(row) for row in factory.sql("SELECT name, kind, roles FROM pillarbox.principals")] == [
        ("ann", "person", ["admin", "sender"])
    ]
    smtpd, queued = load_smtpd(folder / "smtpd.yaml"), load_queued(folder / "queued.yaml")
    [transport] = queued.transports
    assert (smtpd.servers[0].hostname, transport.hostname) == ("mail.example.com", "mail.example.com")
    assert transport.connection.mode == "mx"
    for rule in queued.signing.rules:
        [key] = rule.keys
        assert key.file.stat().st_mode & 0o077 == 0
        record = read_key(key.file).record()
        [line] = [each for each in done["records"] if each.startswith(f"pillarbox._domainkey.{rule.domain}.")]
        assert record in "".join(line.split('"')[1::2])
    assert [rule.domain for rule in queued.signing.rules] == ["example.com", "example.org"]
    assert 'example.org. IN TXT "v=spf1 a:mail.example.com ~all"' in done["records"]
    assert [line for line in (folder / "dns.zone").read_text().splitlines() if line[0] != ";"] == done["records"]
    assert {name.rsplit("/")[-1] for name in done["files"]} >= {"smtpd.yaml", "queued.schema.json", "privatekey.pem"}


def test_the_certificate_is_of_the_host_and_its_key_is_private(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(capsys, tmp_path, *HOST, "--direct", "--database", database)
    file = tmp_path / "tls" / "certificate.pem"
    names = x509.load_pem_x509_certificate(file.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["mail.example.com"]
    key = tmp_path / "tls" / "privatekey.pem"
    assert key.stat().st_mode & 0o077 == 0
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, key)


@pytest.mark.parametrize(
    ("given", "address", "port"),
    [("0.0.0.0", "0.0.0.0", 25), ("127.0.0.1:2500", "127.0.0.1", 2500)],  # noqa: S104
)
def test_smtpd_listens_where_it_is_told(database: str, tmp_path: Path, given: str, address: str, port: int) -> None:
    folder = tmp_path / "etc"
    assert init(folder, *HOST, "--direct", "--database", database, "--listen", given) == 0
    [server] = load_smtpd(folder / "smtpd.yaml").servers
    assert [(each.address, each.port) for each in server.listeners] == [(address, port)]


def test_a_smart_host_has_its_login_in_a_private_file(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = made(capsys, tmp_path, *HOST, "--relay", "smtp.example.net:587", "--user", "me", "--database", database)
    [transport] = load_queued(tmp_path / "queued.yaml").transports
    connection = transport.connection
    assert (connection.mode, connection.server, connection.port) == ("smarthost", "smtp.example.net", 587)
    secret = tmp_path / "relay.password"
    assert (secret.read_text(), secret.stat().st_mode & 0o077) == ("secret\n", 0)
    assert done["records"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*HOST,), "--relay HOST or --direct is required"),
        (("--hostname", "mail", "--direct"), '--hostname: "mail" is not a fully qualified host name'),
        ((*HOST, "--direct", "--domain", "a b"), "--domain: "),
        ((*HOST, "--direct", "--selector", "a/b"), "--selector: "),
        ((*HOST, "--direct", "--user", "me"), "--user requires --relay"),
        ((*HOST, "--direct", "--database", "nonsense"), "environment.database.uri"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    words: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path / "new", *words) != 0
    assert says in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert init(tmp_path, *words) != 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "smtpd.yaml").write_text("mine")
    assert init(tmp_path, *HOST, "--direct") == 1
    assert "is not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "smtpd.yaml").read_text() == "mine"


def test_without_postgresql_the_files_stay_and_the_rest_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "Ann's box"  # what is to be typed is quoted for a shell
    status = init(folder, *HOST, "--direct", "--database", "postgresql://127.0.0.1:1/x", "--admin", "ann")
    said = capsys.readouterr()
    assert status == os.EX_UNAVAILABLE
    _, _, add = said.err.partition(" && ")
    words = "pillarbox principal add ann --role admin --role sender --config"
    assert shlex.split(add) == [*words.split(), str(folder)]
    _, _, doctor = said.out.partition("beside it: ")
    assert shlex.split(doctor) == ["pillarbox", "doctor", "--config", str(folder)]
    assert load_smtpd(folder / "smtpd.yaml").environment.database.uri == "postgresql://127.0.0.1:1/x"


def test_a_person_at_a_terminal_is_asked_again_until_the_answer_is_good(database: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "scripts.cli", "init", str(tmp_path / "etc"), "--database", database]
    with subprocess.Popen(words, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        os.write(ours, b"mail\nmail.example.com\nsmtp.example.net\n\nexample.com example.org\n")
        _, said = command.communicate(timeout=PATIENCE)
    os.close(ours)
    os.close(theirs)
    assert command.returncode == 0, said
    assert '"mail" is not a fully qualified host name' in said
    queued = load_queued(tmp_path / "etc" / "queued.yaml")
    assert queued.transports[0].connection.server == "smtp.example.net"
    assert [rule.id for rule in queued.signing.rules] == ["example.com", "example.org"]
