"""match — the mail that a policy or a suspend selects

Owns: the fields mail is paced by, and matching them. Pure.
Guarantees: every given field must match, a field that is left out matches anything; a value that begins with a dot
    matches every domain below. Domains match in any case. Mail without a field matches no value of it.
See: shared.config.queued.pacing, Match.
"""

from __future__ import annotations

from itertools import batched
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.config.queued.pacing import FIELDS, FOLDED
from shared.mail.domain import comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from queued.values import Claimed


class Fields(NamedTuple):
    """The facts of mail that wants to leave."""

    transport: str
    destination: str  # the recipients' domain
    sender: str | None = None  # its domain; None is the null sender
    tenant: str | None = None  # metadata `tenant`
    jobid: str | None = None
    site: str | None = None  # the group of mail exchangers, once it is known
    source: str | None = None  # our own address, once it is known

    @staticmethod
    def of(first: Claimed, site: str | None = None) -> Fields:
        """Of a delivery, by its first recipient; `site` once the exchangers are known."""
        tenant = first.metadata.get("tenant")
        return Fields(
            first.transportid,
            first.recipient.domain,
            first.sender.domain if first.sender else None,
            None if tenant is None else str(tenant),
            first.jobid,
            site,
        )

    def folded(self) -> Fields:
        """With domains in lower case, as they are compared and counted."""
        return self._replace(
            destination=self.destination.lower(),
            sender=self.sender and self.sender.lower(),
            site=self.site and self.site.lower(),
        )


#: Known only once the hosts are found.
LATE: Final = frozenset({"site", "source"})
_POSITION: Final = {name: index for index, name in enumerate(FIELDS)}
_Wanted = tuple[int, frozenset[str], tuple[str, ...]]
type _Rest = tuple[tuple[str, tuple[str, ...]], ...]  # a selection without `destination`


class Selection:
    """A match, made ready to be asked often."""

    __slots__ = ("_wanted", "asks_destination", "domain", "late")

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        """`values`: for each field that is asked for, what it may be; an empty list asks for nothing."""
        wanted: list[_Wanted] = []
        for name, given in values.items():
            if given:
                plain = [comparable(value) if name in FOLDED else value for value in given]
                below = tuple(value for value in plain if name in FOLDED and value.startswith("."))
                wanted.append((_POSITION[name], frozenset(plain).difference(below), below))
        self._wanted = tuple(wanted)
        #: Whether this can be decided only once the hosts are found.
        self.late = any(FIELDS[position] in LATE for position, *_ in wanted)
        self.asks_destination = any(FIELDS[position] == "destination" for position, *_ in wanted)
        #: The one domain it is about, if it is about one: so that many can be distinguished quickly.
        self.domain: str | None = None
        for position, exact, below in wanted:
            if FIELDS[position] == "destination" and len(exact) == 1 and not below:
                self.domain = next(iter(exact))

    def fits(self, fields: Fields) -> bool:
        """Whether this mail is meant; `fields` are folded."""
        for position, exact, below in self._wanted:
            value = fields[position]
            if value is None or not (value in exact or (below and value.endswith(below))):
                return False
        return True


def merged(selections: Iterable[Mapping[str, Sequence[str]]], most: int) -> Iterator[dict[str, list[str]]]:
    """Fewer selections of the same mail: those that differ in `destination` alone are one, with up to `most` values."""
    whole: dict[_Rest, None] = {}
    parts: dict[_Rest, dict[str, None]] = {}
    for selection in selections:
        rest = tuple((name, tuple(each)) for name, each in sorted(selection.items()) if each and name != "destination")
        if names := selection.get("destination"):
            parts.setdefault(rest, {}).update(dict.fromkeys(names))
        else:
            whole[rest] = None
    for rest in whole:
        yield _as_lists(rest)
    for rest, found in parts.items():
        for some in batched(found, most):
            yield {**_as_lists(rest), "destination": list(some)}


def _as_lists(rest: _Rest) -> dict[str, list[str]]:
    return {name: list(values) for name, values in rest}
