"""store — the mail that `pillarbox up --sink` has taken, as files

Owns: the folder: for each message N.eml, its octets, and N.json, its envelope. N counts from 1 and is never used again.
Guarantees: bounded: of more than `most` messages, or more than `octets` of content, the oldest are deleted; the newest
    always stays. A message is listed only when it is whole. Only the folder's owner can read it. It survives restarts.
Raises: OSError of the folder.
Bugs: written without fsync: what the last seconds before a crash of the machine brought may be missing. It is test
    mail.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from operate.mime.render import fields_of

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.sink.records import Received

MOST: Final = 1000  # messages
OCTETS: Final = 256 << 20  # of content
_BEGINNING: Final = 16_384  # octets of a message in which its header is looked for
# The id of the message in the queue, as smtpd/message/trace_headers.py writes it into the first field.
_ID: Final = re.compile(rb"\AReceived: [^\r]*\r\n(?:[ \t][^\r]*\r\n)*?\tid ([0-9a-f-]{36})[;\s]")


@dataclass(frozen=True, slots=True)
class Taken:
    """One message. id: of the message in the queue, "" where it has none. size: in octets. file: its octets."""

    number: int
    id: str
    at: datetime
    sender: str
    recipients: tuple[str, ...]
    size: int
    subject: str
    messageid: str
    file: Path

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "number": self.number,
            "message": self.id or None,
            "received": self.at,
            "sender": self.sender,
            "recipients": list(self.recipients),
            "size": self.size,
            "subject": self.subject,
            "messageid": self.messageid or None,
            "file": str(self.file),
        }


class Store:
    """The folder; made when the first message comes."""

    def __init__(self, folder: Path, *, most: int = MOST, octets: int = OCTETS) -> None:
        self.folder = folder
        self._most, self._octets = most, octets
        self._sizes = {
            number: file.stat().st_size for number in self.numbers() if (file := self._file(number)).exists()
        }
        #: The number of the newest message, 0 without one.
        self.last = max(self._sizes, default=0)

    def numbers(self) -> list[int]:
        """Of all messages, oldest first."""
        return sorted(int(file.stem) for file in self.folder.glob("*.json") if file.stem.isdecimal())

    def add(self, record: Received) -> None:
        """Keep this message, and delete the oldest ones that are too many."""
        content, number = record.content or b"", self.last + 1
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file(number).write_bytes(content)
        envelope = {"at": record.at, "sender": record.sender, "recipients": record.recipients}
        unfinished = self.folder / f"{number}.new"
        unfinished.write_text(json.dumps(envelope), encoding="utf-8")
        unfinished.rename(self._envelope(number))
        self.last = number
        self._sizes[number] = len(content)
        while len(self._sizes) > 1 and (len(self._sizes) > self._most or sum(self._sizes.values()) > self._octets):
            self._delete(min(self._sizes))

    def read(self, number: int) -> Taken | None:
        """The message of this number; None when it is not there, or not any more."""
        file = self._file(number)
        try:
            envelope = json.loads(self._envelope(number).read_text(encoding="utf-8"))
            with file.open("rb") as content:
                beginning = content.read(_BEGINNING)
            size = file.stat().st_size
        except FileNotFoundError:
            return None
        header, found = fields_of(beginning), _ID.match(beginning)
        return Taken(
            number=number,
            id=found[1].decode() if found else "",
            at=datetime.fromtimestamp(envelope["at"], UTC),
            sender=envelope["sender"],
            recipients=tuple(envelope["recipients"]),
            size=size,
            subject=header.get("Subject", ""),
            messageid=header.get("Message-ID", ""),
            file=file,
        )

    def _delete(self, number: int) -> None:
        self._envelope(number).unlink(missing_ok=True)
        self._file(number).unlink(missing_ok=True)
        del self._sizes[number]

    def _file(self, number: int) -> Path:
        return self.folder / f"{number}.eml"

    def _envelope(self, number: int) -> Path:
        return self.folder / f"{number}.json"
