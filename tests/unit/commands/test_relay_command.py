"""test_relay_command — `pillarbox relay` names a smart host and its login in queued.yaml, or changes nothing"""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest

from scripts import cli
from scripts.up.only_one import only_one
from shared.config.queued.load import load_queued

SHIPPED = Path(__file__).parents[3] / "config"
SECRET = "correct horse"  # noqa: S105 - of tests


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped configuration; the terminal answers with the password."""
    made = tmp_path / "config"
    shutil.copytree(SHIPPED, made)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SECRET}\n"))
    return made


def relay(folder: Path, *words: str) -> int:
    return cli.main(["relay", *words, "--config", str(folder)])


def test_the_password_is_written_to_its_own_file_and_only_the_relay_changes(folder: Path) -> None:
    before = (folder / "queued.yaml").read_text()
    assert relay(folder, "smtp.example.com:587", "--user", "apikey") == 0
    [transport] = load_queued(folder / "queued.yaml", {}).transports
    connection = transport.connection
    assert (connection.server, connection.port, transport.tls.implicit) == ("smtp.example.com", 587, False)
    assert connection.auth is not None
    assert connection.auth.user == "apikey"
    secret = folder / "relay.password"
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == (f"{SECRET}\n", 0o600)
    after = (folder / "queued.yaml").read_text()
    assert SECRET not in after
    assert len(set(after.splitlines()) ^ set(before.splitlines())) == 4  # server; port, before and after; auth


def test_who_may_read_the_configuration_may_read_the_password(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Daemons under an account of their own read both by its group; a change as root must not lock them out."""
    (folder / "queued.yaml").chmod(0o640)
    for _ in range(2):
        assert relay(folder, "smtp.example.com:587", "--user", "apikey") == 0
        assert [(folder / name).stat().st_mode & 0o777 for name in ("queued.yaml", "relay.password")] == [0o640, 0o640]
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{SECRET}\n"))


@pytest.mark.parametrize(
    ("words", "server", "port", "implicit"),
    [
        (["192.0.2.1"], "192.0.2.1", 25, False),
        (["[2001:db8::25]:2525"], "2001:db8::25", 2525, False),
        (["smtp.example.com", "--user", "a"], "smtp.example.com", 587, False),
        (["smtp.example.com:465", "--user", "a"], "smtp.example.com", 465, True),
    ],
)
def test_the_port_decides_implicit_tls(
    folder: Path, words: list[str], server: str, port: int, *, implicit: bool
) -> None:
    assert relay(folder, *words) == 0
    [transport] = load_queued(folder / "queued.yaml", {}).transports
    assert (transport.connection.server, transport.connection.port) == (server, port)
    assert transport.tls.implicit == implicit
    assert (transport.connection.auth is not None) == ("--user" in words)


def test_a_host_without_a_login_removes_the_old_login(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert relay(folder, "smtp.example.com:465", "--user", "a") == 0
    assert relay(folder, "smtp.example.com") == 0
    [transport] = load_queued(folder / "queued.yaml", {}).transports
    assert (transport.connection.auth, transport.tls.implicit) == (None, False)
    assert "transport default sends to smtp.example.com port 25 without a login" in capsys.readouterr().out


def test_the_pillarbox_up_that_has_to_reload_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert relay(folder, "smtp.example.com") == 0
    assert "Workers that run use it after a reload: kill -HUP PID, or systemctl reload." in capsys.readouterr().out
    with only_one(tmp_path / "var"):
        assert relay(folder, "smtp.example.com") == 0
    assert f"after a reload: kill -HUP {os.getpid()}, which is `pillarbox up`." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (EOFError, 1, "\npillarbox: the password is empty; nothing was changed\n"),
        (KeyboardInterrupt, 130, "\npillarbox: nothing was changed\n"),
    ],
)
def test_a_password_that_is_not_typed_is_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: type[BaseException],
    status: int,
    says: str,
) -> None:
    def typed() -> str:
        raise answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", typed)
    for command in (["user", "hash", "a"], ["relay", "smtp.example.com", "--user", "a", "--config", str(folder)]):
        assert cli.main(command) == status
        assert capsys.readouterr() == ("", says)
    assert {each.name for each in folder.iterdir()} == {each.name for each in SHIPPED.iterdir()}


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["a.example", "--transport", "bulk"], 64, '--transport: "bulk" is not a transport of '),
        (["bad..example", "--user", "a"], 1, "was not changed"),
    ],
)
def test_invalid_settings_change_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], status: int, says: str
) -> None:
    before = (folder / "queued.yaml").read_text()
    assert relay(folder, *words) == status
    assert says in capsys.readouterr().err
    assert (folder / "queued.yaml").read_text() == before
    assert {each.name for each in folder.iterdir()} == {each.name for each in SHIPPED.iterdir()}


@pytest.mark.parametrize("host", ["a b", "a:0", "a:65536", "a:b", "2001:db8::1", ""])
def test_an_invalid_host_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], host: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        relay(folder, host)
    assert "is not a host; allowed: NAME, NAME:PORT, [IPV6] or [IPV6]:PORT" in capsys.readouterr().err


def test_hosts_are_named_in_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "queued.yaml").write_text("transports: [{id: default, connection: {hosts: [{server: a.example}]}}]\n")
    assert relay(folder, "b.example") == 1
    assert "transport default has hosts or a socket: name the host there" in capsys.readouterr().err


def test_a_terminal_without_utf_8_is_answered_without_a_trace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder.rename(folder.with_name("ж"))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written := io.BytesIO(), encoding="latin-1"))
    assert relay(place, "smtp.example.com") == 0
    assert rb"/\u0436/queued.yaml: transport default sends to smtp.example.com port 25" in written.getvalue()
