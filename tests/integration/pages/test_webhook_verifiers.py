"""test-webhook-verifiers — the code of the how-to page that verifies webhooks takes our signatures and no others

Owns: the Python and the Node of docs/how-to/send/webhooks.md, run as they are written.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from queued.webhooks import signature

if TYPE_CHECKING:
    from collections.abc import Callable

    type Verify = Callable[[str, dict[str, str], bytes], bool]

pytestmark = pytest.mark.counts_pages

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "send" / "webhooks.md"
BODY: Final = '{"type":"delivered","data":{"recipient":"größe@example.com"}}'.encode()
NODE: Final = """
const lines = [];
for await (const chunk of process.stdin) lines.push(chunk);
const asked = JSON.parse(Buffer.concat(lines));
console.log(isGenuine(asked.secret, asked.headers, Buffer.from(asked.body, "hex")));
"""


def code(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


@pytest.fixture(params=["python", "js"])
def verify(request: pytest.FixtureRequest, tmp_path: Path) -> Verify:
    """The page's own code in one of its languages."""
    if request.param == "python":
        names: dict[str, Any] = {}
        exec(code("python"), names)  # noqa: S102 - our own page
        found: Verify = names["is_genuine"]
        return found
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing; its code on docs/how-to/send/webhooks.md is not run")
    script = tmp_path / "verify.mjs"
    script.write_text(code("js") + NODE, encoding="utf-8")

    def ask(secret: str, headers: dict[str, str], body: bytes) -> bool:
        asked = json.dumps({"secret": secret, "headers": headers, "body": body.hex()})
        ran = subprocess.run([node, script], input=asked, capture_output=True, text=True, check=True)
        return json.loads(ran.stdout) is True

    return ask


def test_the_pages_code_takes_our_signatures_and_no_others(verify: Verify) -> None:
    old, new, other = (signature.new_secret() for _ in range(3))
    now = int(time.time())
    headers = dict(signature.headers([signature.key_of(new), signature.key_of(old)], "evt_1", now, BODY))
    assert verify(new, headers, BODY)
    assert verify(old, headers, BODY)
    assert not verify(other, headers, BODY)
    assert not verify(new, headers, BODY + b" ")
    assert not verify(new, {**headers, "webhook-id": "evt_2"}, BODY)
    late = dict(signature.headers([signature.key_of(new)], "evt_1", now - 3600, BODY))
    assert not verify(new, late, BODY)
