"""submitted — a message in a file, as a submitting client sends it

Guarantees: pure.
"""

from __future__ import annotations

import re
from typing import Final

_NEWLINE: Final = re.compile(rb"\r\n|\r|\n")


def as_submitted(content: bytes) -> bytes:
    """As a submitting client sends a file: every line, the last one too, ends with CR LF (RFC 5321 section 2.3.8)."""
    lines = _NEWLINE.sub(b"\r\n", content)
    return lines if not lines or lines.endswith(b"\r\n") else lines + b"\r\n"
