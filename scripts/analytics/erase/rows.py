"""rows — which rows of the lake name an address, and what is left of them

Guarantees: pure. Rows of the person's recipients go; of others the address goes out of their texts. Both exactly as in
    PostgreSQL (sql/schema/24_erasure.sql), so that the sums of a day stay those of PostgreSQL's day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from operate.erase import Person

#: The columns of each table that may hold an address within a text.
TEXTS: Final = {
    "archive": ("saslusername", "last_error", "subject", "metadata"),
    "attempts": ("reply_text", "conversation"),
    "audit": ("condition", "argument", "reason"),
}
_NONE: Final = pc.scalar(False)


class Naming:
    """What names a person in one table: own rows, and texts of others."""

    def __init__(self, history: str, person: Person, recipients: AbstractSet[tuple[int, str]]) -> None:
        self.history = history
        self._person = person
        self._recipients = recipients
        self._own = self._expression()

    @property
    def columns(self) -> list[str]:
        """The columns that tell whether a row is concerned."""
        return [*_KEYS[self.history], *TEXTS[self.history]]

    def concerned(self, names: list[str]) -> pc.Expression:
        """Whether a row goes or changes, of a file with these columns."""
        whole = self._own
        for name in TEXTS[self.history]:
            if name in names:
                whole = whole | pc.coalesce(self._named(pc.field(name)), _NONE)
        return whole

    def left(self, rows: pa.Table) -> pa.Table:
        """These rows without the person."""
        kept = rows.filter(~self._own)
        for name in TEXTS[self.history]:
            if name not in kept.column_names:
                continue
            column = kept[name]
            if pc.any(self._named(column)).as_py():
                for _ in range(2):
                    column = pc.replace_substring_regex(column, f"(?i){self._person.pattern}", r"\1(erased)\2")
                kept = kept.set_column(kept.column_names.index(name), kept.schema.field(name), column)
        return kept

    def owns(self, cells: Mapping[str, bytes]) -> bool:
        """Whether a quarantined row is the person's."""
        if self.history == "attempts":
            return (int(cells["queue__id"]), cells["messages__id"].decode()) in self._recipients
        return any(
            _lower(cells.get(f"{side}localpart")) == self._person.localpart
            and _lower(cells.get(f"{side}domain")) in self._person.domains
            for side in ("recipient", "sender")
        )

    def _named(self, column: Any) -> Any:
        return pc.match_substring_regex(column, self._person.pattern, ignore_case=True)

    def _expression(self) -> pc.Expression:
        if self.history == "audit":
            return _NONE
        if self.history == "attempts":
            if not self._recipients:
                return _NONE
            ids, messages = zip(*self._recipients, strict=True)
            return pc.field("queue__id").isin(pa.array(sorted(set(ids)), pa.int64())) & pc.field("messages__id").isin(
                pa.array(sorted(set(messages)), pa.string())
            )
        sides = [
            (pc.utf8_lower(pc.field(f"{side}localpart")) == pc.scalar(self._person.localpart))
            & pc.utf8_lower(pc.field(f"{side}domain")).isin(pa.array(self._person.domains, pa.string()))
            for side in ("recipient", "sender")
        ]
        return pc.coalesce(sides[0], _NONE) | pc.coalesce(sides[1], _NONE)


_KEYS: Final = {
    "archive": (*("id", "messages__id", "recipientlocalpart", "recipientdomain", "senderlocalpart", "senderdomain"),),
    "attempts": ("queue__id", "messages__id"),
    "audit": (),
}


def _lower(octets: bytes | None) -> str | None:
    return None if octets is None else octets.decode("utf-8", "replace").lower()
