"""http — sends by the HTTP API, and asks what became of a message

Owns: the requests. A key shows who sends: `pillarbox key add` makes one.
Guarantees: a message is sent once, however often a request has to be made again: each has an Idempotency-Key, the
    caller's or one of its own, and a connection that broke, 502 to 504 and a key that is busy are tried again under it.
Raises: Problem where the server refuses, with its words, or where a proxy or something else answers in its place;
    httpx.TransportError if no answer came to the last try.
See: docs/how-to/send/send-by-http.md of Pillarbox; RFC 9457, the form of a problem.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID, uuid4

import httpx
from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pillarbox_client.message import Message

#: Whether the message was sent is unknown: httpd in trouble answers so, and a proxy that has no answer from httpd.
_UNKNOWN: Final = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_BUSY: Final = "idempotency_key_busy"
_LONGEST: Final = 30.0  # seconds that a Retry-After is waited for


class Problem(Exception):
    """The server refused: `status` and `code` say why for programs, the text for people."""

    def __init__(self, answer: httpx.Response) -> None:
        self.said = _object(answer) or {}  # of a proxy this may be anything
        self.status = answer.status_code
        self.code: str | None = self.said.get("code")
        errors = self.said.get("errors")
        places = "; ".join(
            f"{each.get('where')}: {each.get('detail')}"
            for each in (errors if isinstance(errors, list) else ())
            if isinstance(each, dict)
        )
        reason = f"{answer.url} did not answer as Pillarbox does" if answer.is_success else answer.reason_phrase
        detail = self.said.get("detail") or self.said.get("title") or reason
        super().__init__(f"{self.status} {detail}{f' ({places})' if places else ''}")


class Answer(BaseModel):
    """The answer to one message of a batch: its id, or the problem."""

    model_config = ConfigDict(frozen=True)

    status: int
    id: UUID | None = None
    problem: dict[str, Any] | None = None


class Client:
    """Connections to one server, with one key. Close it, or use it in a `with` block; threads may share it."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 30,
        tries: int = 4,
        pause: float = 0.5,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=timeout, transport=transport
        )
        self._tries = tries
        self._pause = pause  # seconds before the second try; doubled for each further one

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, message: Message, *, idempotency_key: str | None = None) -> UUID:
        """Send a message; its id. It is committed to the queue for all its recipients."""
        return UUID(self._post("id", "/v1/messages", _json(message), idempotency_key))

    def send_batch(self, messages: Sequence[Message], *, idempotency_key: str | None = None) -> list[Answer]:
        """Send up to 1,000 messages; the answer to each, in order."""
        answers = self._post("data", "/v1/messages/batch", [_json(each) for each in messages], idempotency_key)
        return [Answer.model_validate(each) for each in answers]

    def message(self, id_: UUID | str) -> dict[str, Any]:
        """What became of a message: its recipients, their states, every try."""
        return self._answer_with("id", "GET", f"/v1/messages/{UUID(str(id_))}")

    def reschedule(self, id_: UUID | str, at: datetime) -> int:
        """Send a message that was not tried yet at another time; how many recipients wait for it."""
        wanted = {"scheduled_at": at.isoformat()}
        return int(self._asked("recipients", "PATCH", f"/v1/messages/{UUID(str(id_))}", json=wanted))

    def cancel(self, id_: UUID | str) -> int:
        """Cancel what is left of a message; how many recipients."""
        return int(self._asked("recipients", "POST", f"/v1/messages/{UUID(str(id_))}/cancel"))

    def _post(self, wanted: str, path: str, content: Any, key: str | None) -> Any:
        headers = {"Idempotency-Key": key or str(uuid4())}
        return self._asked(wanted, "POST", path, json=content, headers=headers)

    def _asked(self, wanted: str, method: str, path: str, **what: Any) -> Any:
        """What the answer has under the name `wanted`."""
        return self._answer_with(wanted, method, path, **what)[wanted]

    def _answer_with(self, wanted: str, method: str, path: str, **what: Any) -> dict[str, Any]:
        """The answer, which is Pillarbox's only if it has this name."""
        for number in range(1, self._tries + 1):
            pause = self._pause * 2 ** (number - 1)
            try:
                answer = self._http.request(method, path, **what)
            except httpx.TransportError:
                if number == self._tries:
                    raise
            else:
                if answer.is_success and wanted in (said := _object(answer) or {}):
                    return said
                problem = Problem(answer)
                if number == self._tries or not (answer.status_code in _UNKNOWN or problem.code == _BUSY):
                    raise problem
                asked = answer.headers.get("Retry-After", "")
                pause = max(pause, min(float(asked), _LONGEST)) if asked.isascii() and asked.isdigit() else pause
            time.sleep(pause)
        raise AssertionError("tries is less than 1")


def _object(answer: httpx.Response) -> dict[str, Any] | None:
    """The JSON object in an answer; None if there is none."""
    try:
        said = answer.json()
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _json(message: Message) -> dict[str, Any]:
    return message.model_dump(mode="json", by_alias=True, exclude_defaults=True)
