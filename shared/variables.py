"""variables — the environment's variables, whose values may be in files

Guarantees: the value of NAME is that of the variable; where it is not set and NAME_FILE is, it is the content of the
    file that NAME_FILE names, without the line end at its end. So secrets come as files, as Docker, Kubernetes and
    systemd hand them over. Who else may read such a file is not checked: in a container every account may.
Raises: UnreadableVariable, one line that names the variable and the file and holds nothing of it.
See: https://hub.docker.com/_/postgres, "Docker Secrets", for the convention.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from shared.errors import ConfigError, cause
from shared.masking import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIX: Final = "_FILE"
_MOST: Final = 2**20  # octets


class UnreadableVariable(ConfigError):
    """The file that has the value of a variable cannot be read; the text says which and why."""


def read(environ: Mapping[str, str], name: str) -> str | None:
    """The value of a variable; None where neither it nor its file is set."""
    file = environ.get(name + _SUFFIX)
    if name in environ or not file:
        return environ.get(name)
    try:
        with Path(file).open("rb") as opened:
            octets = opened.read(_MOST + 1)
        if len(octets) <= _MOST:
            return octets.decode().removesuffix("\n").removesuffix("\r")
        why = f"it is larger than {_MOST} bytes"
    except UnicodeDecodeError:
        why = "it is not UTF-8 text"
    except (OSError, ValueError) as error:  # a path with a zero octet is a ValueError
        why = cause(error)
    raise UnreadableVariable(f"{name}{_SUFFIX} names {one_line(file)}, which cannot be read: {why}")
