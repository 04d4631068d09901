"""test_http — the client for Python says what answered, also where that was not Pillarbox

Owns: proofs about answers that httpd does not give.
See: tests/integration/client/test_client_http.py for those that it gives.
"""

from __future__ import annotations

from typing import Final

import httpx
import pytest
from pillarbox_client import Message
from pillarbox_client.http import Client, Problem

MESSAGE: Final = Message(sender="shop@example.com", to=["ann@example.net"], text="Thanks.")


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (403, '{"errors": ["forbidden", {"where": "to", "detail": "wrong"}]}', "403 Forbidden (to: wrong)"),
        (403, '{"errors": {"token": "expired"}}', "403 Forbidden"),
        (403, '{"errors": 1, "detail": "no"}', "403 no"),
        (403, "[1]", "403 Forbidden"),
        (404, "<html>", "404 Not Found"),
        (200, "<html>Sign in</html>", "200 http://proxy.test/v1/messages did not answer as Pillarbox does"),
        (200, '{"ok": true}', "200 http://proxy.test/v1/messages did not answer as Pillarbox does"),
        (200, "[]", "200 http://proxy.test/v1/messages did not answer as Pillarbox does"),
    ],
)
def test_an_answer_of_something_else_is_a_problem(status: int, body: str, text: str) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, text=body))
    with Client("http://proxy.test", "key", transport=transport, pause=0) as client, pytest.raises(Problem) as refused:
        client.send(MESSAGE)
    assert (refused.value.status, str(refused.value)) == (status, text)
