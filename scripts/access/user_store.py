"""user_store — the storage of users for `pillarbox user`: the file, or the table

Owns: changing one user in either; the text of the file.
Guarantees: a file is replaced whole, by one command at a time, and keeps its owner and rights; a new one is its owner's
    alone, or has those of its folder (scripts/rights.py). smtpd never reads half of one, or one that it refuses for its
    size. Comments in it are lost: it is ours to write.
Raises: PillarboxError for errors that an operator can correct.
See: smtpd/login/user_sources.py, which reads both; sql/schema/06_principal.sql.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from operate import principals
from operate.queue.act import By
from scripts import one_connection
from scripts.replace_file import replace
from scripts.rights import PRIVATE
from shared.config.smtpd.users import UserEntry, load_users
from shared.config.yaml_source import MOST_BYTES
from shared.errors import ConfigError, PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from operate.shapes.settings import PrincipalChanged, SettingsPreview

_HEADING: Final = "# Users who may submit; kept by `pillarbox user`, which removes comments.\n"
#: Columns by key of an entry, where they differ.
COLUMNS: Final = {"partition": "partitionid", "transport": "transportid", "hold": "quarantineid"}


class Store(Protocol):
    """Users that can be changed; each change says whether it found what it was for. noun: what one is called."""

    noun: str

    def entries(self) -> Mapping[str, UserEntry]:
        """Every user by name."""

    def add(self, name: str, entry: UserEntry) -> bool:
        """Add a user unless the name is taken."""

    def change(self, name: str, **values: Any) -> bool:
        """Give a user other values."""

    def remove(self, name: str) -> bool:
        """Forget a user."""


class FileStore:
    """The file of `authentication.file`."""

    noun = "user"

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()  # a link stays one

    def entries(self) -> dict[str, UserEntry]:
        """As in Store."""
        return load_users(self._path) if self._path.exists() else {}

    def add(self, name: str, entry: UserEntry) -> bool:
        """As in Store."""
        with self._locked() as users:
            if name in users:
                return False
            self._write({**users, name: entry})
        return True

    def change(self, name: str, **values: Any) -> bool:
        """As in Store."""
        with self._locked() as users:
            if name not in users:
                return False
            self._write({**users, name: users[name].model_copy(update=values)})
        return True

    def remove(self, name: str) -> bool:
        """As in Store."""
        with self._locked() as users:
            if users.pop(name, None) is None:
                return False
            self._write(users)
        return True

    @contextmanager
    def _locked(self) -> Iterator[dict[str, UserEntry]]:
        """The users as they are, while no other command changes them."""
        try:
            # The folder stands for the file, which is replaced each time; nothing is left behind.
            folder = os.open(self._path.parent, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"{self._path.parent}: {error.strerror}; allowed: a folder that exists") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield self.entries()
        finally:
            os.close(folder)

    def _write(self, users: Mapping[str, UserEntry]) -> None:
        written = text(users)
        if len(written.encode()) > MOST_BYTES:
            raise PillarboxError(
                f"{self._path}: has no room for more users; allowed: {MOST_BYTES} bytes, or users in the table"
                " (authentication.source: table)"
            )
        try:
            replace(self._path, written, mode=PRIVATE, like=self._path.parent)
        except OSError as error:
            raise PillarboxError(f"{self._path}: cannot be written: {error.strerror}") from None


class TableStore:
    """The view pillarbox.users.

    conninfo: names a role that may change the view. by: the operator and the reason, for the audit row.
    """

    noun = "user"

    def __init__(self, conninfo: str, by: By | None = None) -> None:
        self._conninfo = conninfo
        self._by = by or By(operator=one_connection.system_user())

    def entries(self) -> dict[str, UserEntry]:
        """As in Store."""
        keys = UserEntry.model_fields
        return {
            row.name: UserEntry.model_validate({key: getattr(row, COLUMNS.get(key, key)) for key in keys})
            for row in self._ask("user_list")
        }

    def add(self, name: str, entry: UserEntry) -> bool:
        """As in Store."""
        return self._change("add", "user_add", name, **entry.model_dump())

    def change(self, name: str, **values: Any) -> bool:
        """As in Store."""
        return self._change("change", "user_disable" if "disabled" in values else "user_password", name, **values)

    def remove(self, name: str) -> bool:
        """As in Store."""
        return self._change("remove", "user_remove", name)

    def changed(
        self, verb: str, query: str, name: str, *, dry_run: bool = False, **values: Any
    ) -> PrincipalChanged | SettingsPreview | None:
        """Change one, or see what would be changed; None: there was nothing to change."""
        return one_connection.ask(
            self._conninfo,
            f"pillarbox {self.noun}",
            lambda on: principals.changed(on, self._by, verb, query, name, dry_run=dry_run, **values),
        )

    def _change(self, verb: str, query: str, name: str, **values: Any) -> bool:
        return self.changed(verb, query, name, **values) is not None

    def _ask(self, query: str, **values: Any) -> list[database.Row]:
        name = f"pillarbox {self.noun}"
        return one_connection.ask(self._conninfo, name, lambda connection: database.fetch(connection, query, **values))


def text(users: Mapping[str, UserEntry]) -> str:
    """The file for these users: YAML whose values are written as JSON has them."""
    lines = [_HEADING, "users:" + ("" if users else " {}") + "\n"]
    for name, entry in sorted(users.items()):
        values = entry.model_dump(exclude_defaults=True)
        lines.append(f"  {_json(name)}:" + ("" if values else " {}") + "\n")
        lines += [f"    {key}: {_json(value)}\n" for key, value in values.items()]
    return "".join(lines)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
