"""principal_store — the table of principals for `pillarbox principal`

Owns: the model of a principal, and changing one in the table pillarbox.principals.
Guarantees: a change writes what it names and leaves the rest, verifiers of passwords included, as it is.
Raises: PillarboxError for errors that an operator can correct.
See: scripts/access/user_store.py, for the users of a file; sql/schema/06_principal.sql.
"""

import json
from typing import Any, Final, Literal

from scripts.access.user_store import COLUMNS, TableStore
from shared.config.fields import setting
from shared.config.smtpd.policy_fields import QuarantineId
from shared.config.smtpd.users import UserEntry

type Kind = Literal["person", "application"]
type Role = Literal["viewer", "reviewer", "operator", "admin", "sender"]
KINDS: Final = ("person", "application")
ROLES: Final = ("viewer", "reviewer", "operator", "admin", "sender")


class PrincipalEntry(UserEntry):
    """One principal."""

    kind: Kind = setting("application", "Whether it is a person or an application.", unit="word")
    roles: list[Role] = setting(["sender"], "What it may do.", unit="list of roles")
    reviews: list[QuarantineId] | None = setting(
        None, "The quarantines that it may review.", unit="list of quarantine ids", absent="all that let it"
    )


class PrincipalStore(TableStore):
    """The table pillarbox.principals; `conninfo` is of a role that may change it."""

    noun = "principal"

    def entries(self) -> dict[str, UserEntry]:
        """As in Store."""
        keys = PrincipalEntry.model_fields
        return {
            row.name: PrincipalEntry.model_validate({key: getattr(row, COLUMNS.get(key, key)) for key in keys})
            for row in self._ask("principal_list")
        }

    def add(self, name: str, entry: UserEntry) -> bool:
        """As in Store."""
        return self._change("add", "principal_add", name, values=columns(entry.model_dump()))


def columns(values: dict[str, Any]) -> str:
    """Values of an entry as JSON by column."""
    return json.dumps({COLUMNS.get(key, key): value for key, value in values.items()})
