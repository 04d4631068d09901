"""test_tokens — access tokens from programs and from an OAuth 2.0 server with scripted answers

See: queued/smtp/tokens.py; RFC 6749.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from queued.smtp import tokens
from queued.smtp.tokens import NoTokenError
from shared.config.queued.login import Auth
from tests.fixtures.peers.tls_peer import server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from queued.smtp.tokens import Tokens
    from tests.fixtures.peers.certificates import Authority

SECRETS = {"secret": "client-secret-7", "refresh": "refresh-token-1"}


class TokenServer:
    """answers: status and body for each request, the last one repeated. asked: the forms."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r")[0])
            form = parse_qs((await reader.readexactly(length)).decode())
            self.asked.append({name: value for name, [value] in form.items()})
            status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            location = "Location: https://elsewhere.example/\r\n" if status == 302 else ""
            writer.write(f"HTTP/1.1 {status} X\r\n{location}Content-Length: {len(text)}\r\n\r\n".encode() + text)
            await writer.drain()
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # a client that does not trust us goes
        finally:
            writer.close()


@asynccontextmanager
async def token_server(authority: Authority, *answers: tuple[int, Any]) -> AsyncIterator[TokenServer]:
    made = TokenServer(*answers)
    context = server_context(authority.issue("localhost"))
    async with await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


def oauth(port: int, authority: Authority, *, refresh: bool = True, trusted: bool = True, **more: Any) -> Tokens:
    for name, secret in SECRETS.items():
        file = authority.folder / name
        file.write_text(secret)
        file.chmod(0o600)
    settings: dict[str, Any] = {
        "url": f"https://localhost:{port}/token",
        "clientid": "us",
        "clientsecret": {"file": str(authority.folder / "secret")},
        **more,
    }
    if trusted:
        settings["ca"] = str(authority.file)
    if refresh:
        settings["refresh"] = {"file": str(authority.folder / "refresh")}
    return tokens.source(Auth.model_validate({"user": "alice", "oauth": settings}))


async def test_a_token_is_requested_once_and_cached(authority: Authority) -> None:
    async with token_server(authority, (200, {"access_token": "one", "expires_in": 3600})) as server:
        source = oauth(server.port, authority, scope="mail.send")
        assert set(await asyncio.gather(*(source.get() for _ in range(20)))) == {"one"}
    assert server.asked == [
        {
            "grant_type": "refresh_token",
            "refresh_token": SECRETS["refresh"],
            "client_id": "us",
            "client_secret": SECRETS["secret"],
            "scope": "mail.send",
        }
    ]


async def test_a_refused_token_is_discarded_and_a_new_refresh_token_used(authority: Authority) -> None:
    first = {"access_token": "one", "expires_in": 3600, "refresh_token": "refresh-token-2"}
    async with token_server(authority, (200, first), (200, {"access_token": "two"})) as server:
        source = oauth(server.port, authority)
        assert await source.get() == "one"
        assert not source.refused("one")  # it was fresh: the next one will be no better
        assert await source.get() == "two"
    assert [form["refresh_token"] for form in server.asked] == [SECRETS["refresh"], "refresh-token-2"]


@pytest.mark.parametrize("lifetime", [10**400, float("inf"), float("nan"), -1, "3600", None])
async def test_a_lifetime_that_says_nothing_is_some_minutes(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, lifetime: object
) -> None:
    now = 1000.0
    monkeypatch.setattr(tokens, "monotonic", lambda: now)
    answers = [(200, {"access_token": name, "expires_in": lifetime}) for name in ("one", "two")]
    async with token_server(authority, *answers) as server:
        source = oauth(server.port, authority)
        assert await source.get() == "one"
        now += 301
        assert await source.get() == "two"


async def test_an_expiring_token_is_replaced(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(tokens, "monotonic", lambda: now)
    answers = [(200, {"access_token": name, "expires_in": 600}) for name in ("one", "two")]
    async with token_server(authority, *answers) as server:
        source = oauth(server.port, authority)
        assert await source.get() == "one"
        now += 539
        assert await source.get() == "one"
        assert source.refused("one")  # that old, a new one may be better
        now += 2
        assert await source.get() == "two"


async def test_a_failure_reaches_all_waiting_requests_and_is_not_cached(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(tokens, "monotonic", lambda: now)
    async with token_server(authority, (503, {}), (200, {"access_token": "one"})) as server:
        source = oauth(server.port, authority)
        failed = await asyncio.gather(*(source.get() for _ in range(20)), return_exceptions=True)
        assert all(isinstance(each, NoTokenError) for each in failed)
        assert len(server.asked) == 1
        now += 1.1
        assert await source.get() == "one"


async def test_without_a_refresh_token_client_credentials_are_used(authority: Authority) -> None:
    async with token_server(authority, (200, {"access_token": "one"})) as server:
        assert await oauth(server.port, authority, refresh=False).get() == "one"
    assert server.asked == [{"grant_type": "client_credentials", "client_id": "us", "client_secret": SECRETS["secret"]}]


@pytest.mark.parametrize(
    ("status", "body", "lasting", "text"),
    [
        (400, {"error": "invalid_grant", "error_description": SECRETS["refresh"]}, True, "answers 400 invalid_grant"),
        (400, {"error": SECRETS["refresh"]}, True, "answers 400"),
        (401, {"error": "invalid_client"}, True, "answers 401 invalid_client"),
        (400, {"error": "with blanks and\nlines"}, False, "answers 400"),
        (503, {"error": "temporarily_unavailable"}, False, "answers 503 temporarily_unavailable"),
        (302, {}, False, "answers 302"),
        (200, {}, False, "returned no access_token"),
        (200, b"<html>", False, "answers 200"),
        (200, b"[" * 50_000, False, "answers 200"),
        (200, b" " * 100_000, False, "answers 200 with more than 65536 octets"),
        (200, {"access_token": "in jected\r\nMAIL"}, True, "characters that are not allowed"),
    ],
)
async def test_each_error_of_the_server_has_its_text_and_duration(
    *, authority: Authority, status: int, body: Any, lasting: bool, text: str
) -> None:
    async with token_server(authority, (status, body)) as server:
        with pytest.raises(NoTokenError) as raised:
            await oauth(server.port, authority).get()
    assert text in str(raised.value)
    assert raised.value.lasting is lasting
    assert not any(secret in str(raised.value) for secret in SECRETS.values())


async def test_an_unverified_server_gets_no_secret(authority: Authority) -> None:
    async with token_server(authority, (200, {"access_token": "one"})) as server:
        with pytest.raises(NoTokenError, match="certificate verify failed") as raised:
            await oauth(server.port, authority, trusted=False).get()
    assert not raised.value.lasting
    assert server.asked == []


def printing(folder: Path, script: str, **more: Any) -> Tokens:
    program = folder / "token"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return tokens.source(Auth.model_validate({"user": "alice", "token": {"command": [str(program)], **more}}))


async def test_a_program_is_run_again_when_its_token_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(tokens, "monotonic", lambda: now)
    source = printing(tmp_path, f"echo x >>{tmp_path}/runs; echo token-$(wc -l <{tmp_path}/runs)", lifetime="1m")
    assert [await source.get(), await source.get()] == ["token-1", "token-1"]
    now += 61
    assert await source.get() == "token-2"
    source.refused("token-2")
    assert await source.get() == "token-3"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo hush >&2; echo hush; exit 3", "ended with status 3"),
        ("true", "holds nothing"),
        ("echo one; echo two", "several lines"),
        ("head -c 1000000 /dev/zero", "too much"),
        ("sleep 30 & echo one two", "characters that are not allowed"),
        ("exec sleep 60", "within 0.3 s"),
    ],
)
async def test_a_program_without_output_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, text: str
) -> None:
    monkeypatch.setattr(tokens, "_PATIENCE", 0.3 if script.startswith("exec") else 15.0)
    with pytest.raises(NoTokenError, match=text) as raised:
        await printing(tmp_path, script).get()
    assert "hush" not in str(raised.value)


async def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    source = tokens.source(Auth.model_validate({"user": "a", "token": {"command": [str(tmp_path / "gone")]}}))
    with pytest.raises(NoTokenError, match="does not start: No such file") as raised:
        await source.get()
    assert raised.value.lasting


async def test_a_file_is_read_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    file.chmod(0o600)
    source = tokens.source(Auth.model_validate({"user": "a", "token": {"file": str(file)}}))
    assert await source.get() == "one"
    file.write_text("two\n")
    assert await source.get() == "two"
    file.chmod(0o644)
    with pytest.raises(NoTokenError, match="open to everybody"):
        await source.get()
