"""sign — measures DKIM signing, per message

Owns: the measurement that docs/how-to/deliver/sign-with-dkim.md quotes.
Guarantees: messages are signed as in queued, one after another in one thread. The figure is the best of several rounds,
    because other work on the machine can only make it worse. The keys are temporary.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Final
from uuid import UUID

from queued.signing.keys import new_key
from queued.signing.sign import Signer
from shared.config.queued.signing import Signing

_ROUNDS: Final = 7
_HEADER: Final = (
    b"From: Ann <ann@origin.example>\r\nTo: Bob <bob@example.net>\r\nSubject: a message to measure with\r\n"
    b"Date: Sat, 21 Nov 2026 12:00:00 +0000\r\nMessage-ID: <1@origin.example>\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: text/plain; charset=utf-8\r\n\r\n"
)
_LINE: Final = b"The post that waits in a row of boxes is carried on by those whose turn it is.\r\n"
_CASES: Final = {"rsa2048": (False,), "ed25519": (True,), "both": (False, True)}


def main(arguments: list[str] | None = None) -> int:
    """Measure and print one line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.sign", description="Measure DKIM signing.")
    parser.add_argument("--size", type=int, default=4096, metavar="OCTETS", help="size of a message (default 4096)")
    parser.add_argument("--messages", type=int, default=300, metavar="N", help="messages in each round (default 300)")
    options = parser.parse_args(arguments)
    content = _HEADER + _LINE * max(1, (options.size - len(_HEADER)) // len(_LINE))
    with tempfile.TemporaryDirectory() as folder:
        signers = {name: _signer(Path(folder), name, kinds) for name, kinds in _CASES.items()}
    figures = " ".join(
        f"sign_{name}_us={_best(signer, content, options.messages):.0f}" for name, signer in signers.items()
    )
    print(f"octets={len(content)} {figures}")
    return 0


def _signer(folder: Path, name: str, kinds: tuple[bool, ...]) -> Signer:
    keys: list[dict[str, str]] = []
    for ed25519 in kinds:
        file = folder / f"{name}-{ed25519}.pem"
        file.write_bytes(new_key(ed25519=ed25519).pem())
        keys.append({"selector": f"s{len(keys)}", "file": str(file)})
    return Signer(Signing.model_validate({"rules": [{"id": "all", "senderdomain": ["*"], "keys": keys}]}))


def _best(signer: Signer, content: bytes, messages: int) -> float:
    """Microseconds per message in the fastest round."""
    now = datetime.now(UTC)
    best = float("inf")
    for _ in range(_ROUNDS):
        started = perf_counter()
        for number in range(messages):
            signer.signatures(UUID(int=number), content, None, now)
        best = min(best, perf_counter() - started)
    return best / messages * 1e6


if __name__ == "__main__":
    sys.exit(main())
