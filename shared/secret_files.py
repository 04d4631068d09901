"""secret_files — reads passwords and tokens from files and from the environment

Guarantees: the result is one line without control characters. A file that others than its owner and group may read,
    write or execute is refused, as libpq refuses a password file that is open; not one that a variable's NAME_FILE
    names. No error holds a secret.
Raises: UnusableSecret, one line that names the file or the variable.
See: https://www.postgresql.org/docs/current/libpq-pgpass.html
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from shared import variables
from shared.errors import ConfigError, cause

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.queued.login import Secret, Token

LONGEST: Final = 16384  # octets; access tokens have a few thousand


class UnusableSecret(ConfigError):
    """A secret cannot be had; the text says which and why."""


def read(place: Secret | Token) -> str:
    """The secret at a place that is a file or a variable."""
    if place.file is not None:
        return from_file(place.file)
    name = place.environment or ""
    try:
        value = variables.read(os.environ, name)
    except variables.UnreadableVariable as error:
        raise UnusableSecret(str(error)) from None
    if value is None:
        raise UnusableSecret(f"the environment variable {name} is not set")
    return one_line(value.encode(errors="surrogateescape"), f"the environment variable {name}")


def from_file(path: Path) -> str:
    """The one line of a file."""
    try:
        # Without O_NONBLOCK opening a pipe would wait for its writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnusableSecret(f"{path} is not a file")
            if status.st_mode & stat.S_IRWXO:
                mode = stat.S_IMODE(status.st_mode)
                raise UnusableSecret(f"{path} is open to everybody (mode {mode:04o}); allowed: 0640 or less")
            octets = file.read(LONGEST + 1)
    except OSError as error:
        raise UnusableSecret(f"{path} cannot be read: {cause(error)}") from None
    return one_line(octets, str(path))


def one_line(octets: bytes, where: str) -> str:
    """The text of one line, its end left out."""
    line = octets.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise UnusableSecret(f"{where} does not hold UTF-8") from None
    if not text or len(octets) > LONGEST:
        raise UnusableSecret(f"{where} holds {'nothing' if not text else 'too much'}; allowed: one line")
    if any(character < " " or character == "\x7f" for character in text):
        raise UnusableSecret(f"{where} holds control characters or several lines; allowed: one line")
    return text
