"""test_accounts_command — `pillarbox accounts` and the collector as a daemon: what they say, and how they stop"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
import yaml

from scripts.cli import main
from shared.security.account_token import ACTIVATE, RECOVER, sign, sign_bound
from tests.fixtures.daemons.running_up import Up
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.database.accounts import Accounts

_KEY: Final = "cafebabe" * 8
_OTHER: Final = "deadbeef" * 8


def write(folder: Path, uri: str, **sections: Any) -> Path:
    """A folder with every configuration file; sections as in collect.yaml."""
    environment = {"database": {"uri": uri}, "var": str(folder / "var")}
    (folder / "key").write_text(f"{_KEY}\n")
    (folder / "key").chmod(0o600)
    collect: dict[str, Any] = {
        "environment": environment,
        "accounts": {"schema": "accounts"},
        "keys": [{"id": "k", "file": str(folder / "key")}],
        "mail": {
            "sender": "accounts@example.com",
            "activate": "https://example.com/activate?token={token}",
            "recover": "https://example.com/recover?token={token}",
        },
        **sections,
    }
    smtpd = {"environment": environment, "servers": [{"hostname": "mx.test", "listeners": [{"port": 0}]}]}
    queued = {"environment": environment, "workers": [{"id": "w", "where": "false"}]}
    for name, content in (("collect", collect), ("smtpd", smtpd), ("queued", queued)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder


@asynccontextmanager
async def daemon(folder: Path, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`python -m collect`, its log in the file `log`; stopped at the end."""
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "collect", "--config", str(folder / "collect.yaml")),
            cwd=ROOT,
            env={**os.environ, **environ},
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE):
            await process.wait()


def count(accounts: Accounts) -> int:
    """How many recipients are queued."""
    return int(accounts.one("SELECT count(*) FROM pillarbox.queue"))


def test_install_and_remove_say_what_they_do(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--config", str(write(tmp_path, database)), "--schema", "shop")
    assert main(["accounts", "install", *where]) == 0
    assert main(["accounts", "install", *where]) == 0
    assert capsys.readouterr().out == "applied 0001_pre_schema\nnothing to do\n"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("INSERT INTO shop.accounts (email, login) VALUES ('a@a.example', 'a')")
    assert main(["accounts", "remove", *where, "--dry-run"]) == 0
    assert main(["accounts", "remove", *where]) == 1
    assert "there is no terminal to ask at" in capsys.readouterr().err
    assert main(["accounts", "remove", *where, "--yes"]) == 0
    assert capsys.readouterr().out == "schema shop: 1 account, 1 token; they will be gone\nremoved\n"


def test_verify_names_the_secret_or_refuses(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ("--config", str(write(tmp_path, database)))
    key, secret = bytes.fromhex(_KEY), bytes(32)
    bound = sign_bound("k", key, ACTIVATE, secret, 4_000_000_000)
    assert main(["accounts", "verify", bound, *config]) == 0
    assert capsys.readouterr().out == f"valid: secret {secret.hex()}, key k, expires at 4000000000\n"
    recovery = sign(key, RECOVER, secret, "06435")
    assert main(["accounts", "verify", recovery, "--path", RECOVER, "--code", "06435", *config]) == 0
    assert main(["accounts", "verify", recovery, "--path", RECOVER, "--code", "06436", *config]) == 1
    monkeypatch.setenv("MAILROOM_SECRET_KEY", _OTHER)
    assert main(["accounts", "verify", bound, *config]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "pillarbox: accounts verify: not valid: another key, path or code, expired, or altered"
    )


def test_preview_shows_each_part(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = ("--config", str(write(tmp_path, database)))
    assert main(["accounts", "preview", "activation", *config]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Subject: Activate your account\n\nHello ann,\n")
    assert "https://example.com/activate?token=" in said
    assert main(["accounts", "preview", "password_recovery", "--html", *config]) == 0
    assert "<strong>06435</strong>" in capsys.readouterr().out
    assert main(["accounts", "preview", "activation", "--raw", *config]) == 0
    assert "Content-Type: multipart/alternative" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"enabled": True, "keys": []}, "keys: is missing; allowed without it: enabled: false"),
        ({"batch": {"least": 600}}, "batch.least: 600 is more than batch.most; allowed: at most 500"),
        (
            {"mail": {"activate": "https://example.com/"}},
            "is not a link; allowed: an http or https URL with {token} once",
        ),
        ({"keys": [{"id": "k", "environment": "NOT_SET"}]}, "keys: k: the environment variable NOT_SET is not set"),
        ({"accounts": {"schema": "nowhere"}}, "has no accounts in schema nowhere; run `pillarbox accounts install`"),
    ],
)
async def test_a_configuration_that_cannot_be_used_is_one_line(
    accounts_beside_queue: Accounts, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    async with daemon(write(tmp_path, accounts_beside_queue.uri, **change)) as process, asyncio.timeout(PATIENCE):
        assert await process.wait() == 78
    [line] = (tmp_path / "log").read_text().splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("activation.txt", "{{ nowhere }}", "en/activation.txt: 'nowhere' is undefined"),
        ("activation.html", "{% if %}", "en/activation.html:1: "),
        ("password_recovery.subject", None, "en/password_recovery.subject is missing"),
    ],
)
async def test_a_template_that_cannot_be_used_is_one_line_at_the_start(
    accounts_beside_queue: Accounts, tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    folder = tmp_path / "templates" / "en"
    folder.mkdir(parents=True)
    for file in (ROOT / "collect" / "templates" / "en").iterdir():
        if file.name != name:
            (folder / file.name).write_bytes(file.read_bytes())
    if text is not None:
        (folder / name).write_text(text)
    write(tmp_path, accounts_beside_queue.uri)
    config = yaml.safe_load((tmp_path / "collect.yaml").read_text())
    config["mail"]["templates"] = str(tmp_path / "templates")
    (tmp_path / "collect.yaml").write_text(yaml.safe_dump(config))
    async with daemon(tmp_path) as process, asyncio.timeout(PATIENCE):
        assert await process.wait() == 78
    [line] = (tmp_path / "log").read_text().splitlines()
    assert said in line


async def test_it_reloads_or_goes_on_as_before_and_stops_clean(accounts_beside_queue: Accounts, tmp_path: Path) -> None:
    accounts = accounts_beside_queue
    log = tmp_path / "log"
    write(tmp_path, accounts.uri)
    async with daemon(tmp_path) as process:
        await eventually(lambda: "daemon.started" in log.read_text(), "it runs")
        accounts.add("one")
        await eventually(lambda: count(accounts) == 1, "its mail is queued")
        write(tmp_path, accounts.uri, form="never")
        process.send_signal(signal.SIGHUP)
        await eventually(lambda: "daemon.reload_refused" in log.read_text(), "it refuses")
        write(tmp_path, accounts.uri, form="mailroom", poll="7s")
        process.send_signal(signal.SIGHUP)
        await eventually(lambda: "daemon.reloaded" in log.read_text(), "it reloads")
        assert "daemon.reload_ignored keys=poll" in log.read_text()
        accounts.add("two")
        await eventually(lambda: count(accounts) == 2, "its mail is queued")
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
    signed = accounts.sql("SELECT convert_from(content, 'UTF8') AS text FROM pillarbox.messages ORDER BY id")
    assert "token=k." in signed[0].text.replace("=\r\n", "").replace("=3D", "=")
    assert "token=k." not in signed[1].text.replace("=\r\n", "").replace("=3D", "=")


async def test_up_runs_the_collector_where_it_is_enabled(accounts_beside_queue: Accounts, tmp_path: Path) -> None:
    accounts = accounts_beside_queue
    up = Up(write(tmp_path, accounts.uri, enabled=True))
    await up.start()
    try:
        await eventually(lambda: "collect: accounts in schema accounts" in up.out.read_text(), "the collector serves")
        accounts.add()
        await eventually(lambda: count(accounts) == 1, "the mail is queued")
    finally:
        assert await up.stop() == 0, up.err.read_text()
