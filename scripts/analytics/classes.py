"""classes — the classes of destinations that divide a day of the lake

Owns: the table of domains and their classes, ours or the operator's own.
Guarantees: a pure function of the domain; a domain that is not in the table is `other`. A class is a valid folder name.
Raises: ConfigError naming file, line, value and the allowed values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

OTHER: Final = "other"
_CLASS: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_WORDS: Final = 2
#: The largest mailbox providers.
KNOWN: Final = {
    **dict.fromkeys(("gmail.com", "googlemail.com"), "google"),
    **dict.fromkeys(("outlook.com", "hotmail.com", "live.com", "msn.com", "hotmail.co.uk", "hotmail.fr"), "microsoft"),
    **dict.fromkeys(("yahoo.com", "ymail.com", "aol.com", "yahoo.co.uk", "yahoo.fr", "yahoo.de"), "yahoo"),
    **dict.fromkeys(("icloud.com", "me.com", "mac.com"), "apple"),
    **dict.fromkeys(("gmx.de", "gmx.net", "web.de", "mail.com"), "gmx"),
}


def load(file: Path | None) -> dict[str, str]:
    """The table in a file, a domain and its class on each line, # for comments; without a file, our own."""
    if file is None:
        return dict(KNOWN)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != _WORDS or not _CLASS.fullmatch(words[1]):
            allowed = "a domain and its class, of a-z, 0-9, hyphen and underscore"
            raise ConfigError(f"{file}:{number}: {line.strip()!r} is not valid; allowed: {allowed}")
        found[words[0].lower()] = words[1]
    return found


def classify(domains: pa.ChunkedArray, table: dict[str, str]) -> pa.ChunkedArray:
    """The class of each domain."""
    if not table:
        return pa.chunked_array([pa.array([OTHER] * len(domains), pa.string())])
    which = pc.index_in(pc.ascii_lower(domains), value_set=pa.array(list(table), pa.string()))
    return pc.fill_null(pc.take(pa.array(list(table.values()), pa.string()), which), OTHER)
