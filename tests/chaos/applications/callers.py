"""callers — applications that send by HTTP and retry under their Idempotency-Key until they have 202

Owns: Callers, and the promise to them: each send is accepted exactly once.
Guarantees: a request without an answer, and one that is answered by 409, 429 or 503, is sent again under the same key.
    Of the accepted ones, one in five is sent once more, as by a client that has lost its own notes.
See: docs/how-to/send/send-by-http.md; sql/README.md, "Crash table", 21 and 22.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import replace
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import httpx

from tests.chaos.applications.application import BREATH, Application
from tests.chaos.senders import samples

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripts.demo.sample_mail import Sample
    from tests.chaos.accounts import Accounts
    from tests.chaos.arena import Arena

_TRY_AGAIN: Final = (HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_ONCE_MORE: Final = 5  # of so many accepted sends one is sent again
_MESSAGES: Final = """SELECT count(DISTINCT messages__id) FROM archive"""


class Callers(Application):
    """Sends raw messages at the present address of httpd."""

    def __init__(
        self, accounts: Accounts, address: Callable[[], tuple[str, int]], seed: int, api_key: str, *, box: str
    ) -> None:
        super().__init__(accounts)
        self._address = address
        self._samples = samples(seed, box)
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._ids: dict[str, str] = {}  # by Idempotency-Key, as the first 202 had it
        self._faults: list[str] = []

    async def session(self) -> None:
        """Send one message after another; each until it is accepted."""
        async with httpx.AsyncClient(headers=self._headers, trust_env=False, timeout=30) as client:
            while self.open:
                if await self.is_ahead():
                    continue
                sample = _whole(next(self._samples))
                self.accounts.submit(sample)
                await self._until_accepted(client, sample)

    async def _until_accepted(self, client: httpx.AsyncClient, sample: Sample) -> None:
        key = sample.sender.partition("@")[0]
        body = {"from": sample.sender, "to": list(sample.recipients), "raw": b64encode(sample.content).decode()}
        while (found := await self._asked(client, key, body)) is None or found.status_code in _TRY_AGAIN:
            reply = "" if found is None else f"451 {found.status_code}"
            self.accounts.answer(sample, [reply] * len(sample.recipients), monotonic())
            await asyncio.sleep(BREATH)
        if found.status_code != HTTPStatus.ACCEPTED:
            self._faults.append(f"{key} was answered {found.status_code}: {found.text}")
            return
        self.accounts.answer(sample, ["250 accepted"] * len(sample.recipients), monotonic())
        self._ids[key] = found.json()["id"]
        self.sent += 1
        if self.sent % _ONCE_MORE == 0:
            again = await self._asked(client, key, body)
            if again is not None and again.status_code not in _TRY_AGAIN and again.json().get("id") != self._ids[key]:
                self._faults.append(f"{key} was accepted as {self._ids[key]}, then answered {again.text}")

    async def _asked(self, client: httpx.AsyncClient, key: str, body: dict[str, Any]) -> httpx.Response | None:
        """The answer; None where the connection died first."""
        host, port = self._address()
        try:
            return await client.post(f"http://{host}:{port}/v1/messages", json=body, headers={"Idempotency-Key": key})
        except httpx.HTTPError:
            return None

    async def broken(self, arena: Arena) -> list[str]:
        """Sends that were refused or have two answers, and messages that no send is."""
        messages = await arena.value(_MESSAGES)
        if messages != len(self._ids):
            self._faults.append(f"{len(self._ids)} sends were accepted, as {messages} messages")
        return self._faults


def _whole(sample: Sample) -> Sample:
    """With the fields that httpd would add, so that what arrives is what was sent."""
    name = sample.sender.partition("@")[0]
    fields = (
        f"From: {sample.sender}\r\nDate: Wed, 25 Nov 2026 06:00:00 +0000\r\nMessage-ID: <{name}@origin.example>\r\n"
    )
    return replace(sample, content=fields.encode() + sample.content)
