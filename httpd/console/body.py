"""body — the HTML of one held message, harmless, in an answer of its own

Owns: the headers of that answer; the signed address at which a page shows it in a frame.
Guarantees: no script runs, no form is sent, nothing is fetched and no link leads anywhere: the browser learns it from
    the answer itself, and what could try is taken out besides. The address is good for a few minutes, for one part of
    one message and one session, and ends with the session; no cookie is sent to it.
See: https://www.w3.org/TR/CSP3/ (sandbox); httpd/console/clean.py.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from operate.sign_in import Session

PREFIX: Final = "/console-body"
HEADERS: Final = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-DNS-Prefetch-Control": "off",
}
_GOOD_FOR: Final = 300  # seconds
_BEFORE: Final = (
    "<!doctype html><meta charset=utf-8><title>message</title><style>body{font:15px/1.5 system-ui,sans-serif;"
    "margin:.7rem;color:#111;background:#fff;overflow-wrap:anywhere}img{max-width:100%}a{text-decoration:underline}"
    "</style>"
)


def document(html: str, *, cut: bool) -> str:
    """A whole page of cleaned HTML."""
    return f"{_BEFORE}{html}" + ("<hr><p>The message is longer than what is shown.</p>" if cut else "")


def address(session: Session, recipient: int, part: int) -> str:
    """Where this session may see this part, for a few minutes."""
    until = int(time.time()) + _GOOD_FOR
    return f"{PREFIX}/{session.id}/{recipient}/{part}/{until}/{_seal(session, recipient, part, until)}"


def is_good(session: Session, recipient: int, part: int, until: int, seal: str) -> bool:
    """Whether this session signed this address, and not too long ago."""
    right = _seal(session, recipient, part, until).encode()
    return hmac.compare_digest(right, seal.encode("utf-8", "replace")) and time.time() <= until


def _seal(session: Session, recipient: int, part: int, until: int) -> str:
    return hmac.digest(session.seal, f"body {session.id} {recipient} {part} {until}".encode(), hashlib.sha256).hex()
