"""test_send_hostile — requests made to break the mail or the server: no fault, no header of their own, no mail

Owns: proofs about httpd/sending/forms.py and httpd/gate.py, and the run of schemathesis against our own description.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.api import Api

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.daemons.system import System

MAIL: dict[str, Any] = {"from": "shop@example.com", "to": "ann@example.net", "subject": "Order", "text": "Thanks.\n"}
INJECTED = "x\r\nBcc: victim@example.org"
DEEP = b"[" * 100_000 + b"]" * 100_000

REFUSED: dict[str, dict[str, Any]] = {
    "a line end in the subject": {"subject": INJECTED},
    "a line end in a name": {"from": f'"{INJECTED}" <shop@example.com>'},
    "a line end in an address": {"to": "ann@example.net\r\nRCPT TO:<victim@example.org>"},
    "a line end in a header": {"headers": {"X-A": INJECTED}},
    "a line end in the name of a header": {"headers": {"X-A\r\nBcc": "x"}},
    "a header that is ours": {"headers": {"bcc": "x@example.org"}},
    "a header twice": {"headers": {"X-A": "1", "x-a": "2"}},
    "a line end in the name of a file": {"attachments": [{"filename": INJECTED, "content": "YQ=="}]},
    "a line end in a content id": {"attachments": [{"filename": "a", "content": "YQ==", "content_id": "a\r\nb"}]},
    "a media type with parameters": {"attachments": [{"filename": "a", "content": "YQ==", "content_type": "a/b; c"}]},
    "base64 that is none": {"attachments": [{"filename": "a", "content": "!!!"}]},
    "raw that is not base64": {"raw": "a"},
    "an address of a list in place of http": {"list_unsubscribe": {"url": "javascript:x"}},
    "two addresses as one": {"to": "ann@example.net, bob@example.net"},
    "NUL in the text": {"text": "a\0b"},
    "NUL in metadata": {"metadata": {"a": "\0"}},
    "reserved metadata": {"metadata": {"_partid": "1"}},
    "metadata that is too large": {"metadata": {f"k{n}": "x" * 1000 for n in range(50)} | {"l" * 255: "ä" * 1000}},
    "a number beyond any": {"metadata": {"a": 10**400}},
    "no body at all": {"text": None},
    "an unknown field": {"colour": "red"},
    "a time without a zone": {"scheduled_at": "2030-01-01T00:00:00"},
    "a priority beyond 9": {"priority": 10},
    "nobody": {"to": []},
}


@pytest.fixture
async def hostile(system: System) -> Any:
    """An httpd with small limits, and a client that may send."""
    async with Api(system, await system.httpd(limits={"body": "1MiB"}, rates={"failures": 0})) as api:
        yield api, await api.caller("shop")


async def test_what_could_break_a_message_is_refused_with_its_place(hostile: Any) -> None:
    api, client = hostile
    for what, change in REFUSED.items():
        content = json.dumps({**MAIL, **change})
        answer = await client.post("/v1/messages", content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, (what, answer.text)
        assert answer.json()["detail"], what
    assert await api.system.value("SELECT count(*) FROM messages") == 0


async def test_bodies_that_are_no_json_too_large_too_deep_or_compressed_are_refused(hostile: Any) -> None:
    api, client = hostile
    written = json.dumps(MAIL).encode()
    as_json = {"Content-Type": "application/json"}
    for body, headers, status in (
        (b"{", as_json, 422),
        (b"\xff\xfe", as_json, 422),
        (b'{"subject": "\xff"}', as_json, 422),
        (b'{"subject": "\\ud800"}', as_json, 422),
        (b"NaN", as_json, 422),
        (DEEP, as_json, 422),
        (b"null", as_json, 422),
        (b"", as_json, 422),
        (b"x" * (2 << 20), as_json, 413),
        (gzip.compress(written), {**as_json, "Content-Encoding": "gzip"}, 415),
        (written, {"Content-Type": "text/plain"}, 415),
        (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ):
        for path in ("/v1/messages", "/v1/messages/batch"):
            answer = await client.post(path, content=body, headers=headers)
            assert answer.status_code == status, (path, body[:40], answer.text[:200])

    async def pieces() -> Any:
        for _ in range(64):
            yield b"x" * 65536

    assert (await client.post("/v1/messages", content=pieces(), headers=as_json)).status_code == 413
    assert await api.system.value("SELECT count(*) FROM messages") == 0


async def test_a_raw_message_meets_the_checks_of_smtp(hostile: Any) -> None:
    _, client = hostile
    for raw in (b"Subject: x\n\nbare\n", b"Subject: x\r\n\r\na\0b\r\n", b"Received: a\r\n" * 200 + b"\r\n"):
        answer = await client.post(
            "/v1/messages", json={"from": "a@b.example", "to": "c@d.example", "raw": b64encode(raw).decode()}
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "refused"), answer.text


async def test_a_body_without_a_key_is_not_read(hostile: Any) -> None:
    api, _ = hostile
    head = b"POST /v1/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n"
    assert (await api.raw(head)).startswith(b"HTTP/1.1 401 ")


async def test_schemathesis_finds_no_fault_and_no_answer_that_is_not_described(system: System, tmp_path: Path) -> None:
    async with Api(system, await system.httpd(rates={"failures": 0})) as api:
        key = await api.key("olga", "operator", "sender", kind="person")
        run = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{api.url}/v1/openapi.json"),
            *("-H", f"Authorization: Bearer {key}", "--max-examples", "10", "--seed", "17", "--workers", "1"),
            *("--include-path-regex", "^/(v1/messages|emails)"),
            *("--checks", "not_a_server_error,status_code_conformance,content_type_conformance"),
            *("--checks", "response_schema_conformance", "--phases", "examples,coverage,fuzzing", "--no-color"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await asyncio.wait_for(run.communicate(), 240)
        assert run.returncode == 0, said.decode()[-6000:]
