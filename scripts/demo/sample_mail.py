"""sample_mail — messages to try the system with: generated, or read from a folder

Owns: the mixture of content, sizes and recipients of `pillarbox demo`; reading .eml files as a submitting client sends
    them.
Guarantees: the same seed makes the same mail. Content is in wire form: lines end with CR LF.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from typing import TYPE_CHECKING, Final

from shared.errors import PillarboxError
from shared.mail.submitted import as_submitted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WORDS: Final = [
    "the",
    "post",
    "that",
    "waits",
    "in",
    "a",
    "row",
    "of",
    "boxes",
    "is",
    "carried",
    "on",
    "by",
    "those",
    "whose",
    "turn",
    "it",
    "is",
    "and",
    "none",
    "is",
    "left",
    "behind",
]
_DOMAINS: Final = [
    f"{name}.example"
    for name in [
        "alder",
        "birch",
        "cedar",
        "elm",
        "fir",
        "hazel",
        "larch",
        "maple",
        "oak",
        "pine",
        "rowan",
        "willow",
        "yew",
    ]
]
_UTF8_RECIPIENT: Final = "jörg.størm@bücher.example"
_KINDS: Final = ("plain", "plain", "plain", "8bit", "multipart", "attachment", "utf8")
# Sizes as mail has them: many small, a few large. Octets of the largest part.
_SIZES: Final = (1_000, 1_000, 2_000, 4_000, 4_000, 8_000, 20_000, 60_000)
_LARGE: Final = (500_000, 5_000_000)


@dataclass(frozen=True, slots=True)
class Sample:
    """One message to submit."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    smtputf8: bool = False


def made_up(count: int, seed: int) -> Iterator[Sample]:
    """`count` messages of every kind: one in ten to many recipients, one in a hundred large."""
    chance = random.Random(seed)
    for number in range(count):
        kind = chance.choice(_KINDS)
        size = chance.choice(_LARGE) if number % 100 == 42 else chance.choice(_SIZES)  # noqa: PLR2004
        wanted = chance.randint(2, 50) if chance.random() < 0.1 else 1  # noqa: PLR2004 - one in ten
        recipients = tuple(f"r{number}.{i}@{chance.choice(_DOMAINS)}" for i in range(wanted))
        if kind == "utf8":
            recipients = (*recipients[1:], _UTF8_RECIPIENT)
        sender = f"demo.{number}@pillarbox.example"
        yield Sample(sender, recipients, _compose(kind, sender, recipients, size, chance), smtputf8=kind == "utf8")


def from_folder(folder: Path, seed: int) -> Iterator[Sample]:
    """Every .eml file below the folder, to a few made-up recipients each."""
    files = sorted(folder.rglob("*.eml")) if folder.is_dir() else []
    if not files:
        raise PillarboxError(f"--mail {folder}: no .eml file there; allowed: a folder that holds some")
    chance = random.Random(seed)
    for number, file in enumerate(files):
        recipients = tuple(f"r{number}.{i}@{chance.choice(_DOMAINS)}" for i in range(chance.randint(1, 5)))
        yield Sample(f"demo.{number}@pillarbox.example", recipients, as_submitted(file.read_bytes()))


def _compose(kind: str, sender: str, recipients: tuple[str, ...], size: int, chance: random.Random) -> bytes:
    message = EmailMessage(policy=SMTP.clone(utf8=kind == "utf8", max_line_length=998))
    message["From"], message["To"] = sender, recipients[0]
    message["Subject"] = "Grüße aus dem Postamt" if kind in {"8bit", "utf8"} else "From the post office"
    message["Message-ID"] = f"<{chance.getrandbits(64):x}@pillarbox.example>"
    text = _text(size if kind != "attachment" else 500, chance)
    if kind == "8bit":
        message.set_content(text + "Zoë, naïve café ☕\n", cte="8bit")
    else:
        message.set_content(text + ".\n..leading dots\n")
    if kind == "multipart":
        message.add_alternative(f"<p>{text}</p>", subtype="html")
    if kind == "attachment":
        message.add_attachment(
            chance.randbytes(size), maintype="application", subtype="octet-stream", filename="stamp collection.bin"
        )
    return as_submitted(message.as_bytes())


def _text(size: int, chance: random.Random) -> str:
    line = " ".join(chance.choice(_WORDS) for _ in range(12))
    return f"{line}\n" * (size // len(line) + 1)
