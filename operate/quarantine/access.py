"""access — the permission to decide about a quarantine

Owns: the rules of `quarantines[].reviewers`, and turning a condition into one that keeps to them.
Guarantees: operators (who own the queue) may do everything; others need the role pillarbox_reviewer, and must be among
    the reviewers of each quarantine they touch, where it names any. Mail that comes into a closed quarantine between
    the check and the change is left alone, too. PostgreSQL decides by the same rules, of the last `pillarbox migrate`.
Raises: Refused and its kinds in one line, before anything is changed.
See: docs/how-to/rights/grant-roles.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from operate.condition.ids import is_recipient, named
from operate.errors import NotAllowed, NotNow, NotThere, Refused
from operate.queue.query import asked, to_the_second
from shared.config.smtpd.quarantine import all_quarantines
from shared.how_many import how_many
from shared.masking import show
from shared.postgres import database
from shared.postgres.acting import principal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from operate.queue.query import Query
    from shared.config.smtpd.quarantine import Quarantine
    from shared.config.smtpd.settings import SmtpdConfig

_REVIEWER: Final = "pillarbox_reviewer"
_MOST_IDS: Final = 1000
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Access:
    """A login or the principal it acts for, what it may, and every quarantine that is declared, by id.

    unspooling: why it may not queue mail; empty where it may. others: the quarantines among them in which PostgreSQL
    does not let it decide.
    """

    login: str
    roles: frozenset[str]
    operator: bool
    unspooling: str
    quarantines: dict[str, Quarantine]
    others: frozenset[str] = frozenset()

    def may(self, quarantine: str | None) -> bool:
        """Whether the login may decide in this quarantine; None: held without one."""
        if self.operator or quarantine in self.others:
            return self.operator
        known = self.quarantines.get(quarantine or "")
        return known is None or not known.reviewers or not self.roles.isdisjoint(known.reviewers)

    def refusal(self, quarantine: str | None) -> str:
        """Why it may not."""
        known = self.quarantines.get(quarantine or "")
        if known is None or not known.reviewers or not self.roles.isdisjoint(known.reviewers):
            why = "see `pillarbox principal list`, and run `pillarbox migrate` after a change of reviewers"
            return f"PostgreSQL does not let {show(self.login)} decide in {show(quarantine)}: {why}"
        reviewers = ", ".join(known.reviewers)
        return f"{show(self.login)} is not a reviewer of {show(quarantine)}; its reviewers are {reviewers}"


async def admit(connection: database.Connection, settings: SmtpdConfig) -> Access:
    """The login that asks, or the principal it acts for; refused without the role."""
    [row] = await database.fetch(connection, "quarantine_login")
    if not row.operator and _REVIEWER not in row.roles:
        hint = f"grant it {_REVIEWER}; see docs/how-to/rights/grant-roles.md"
        raise NotAllowed(f"{show(row.login)} is not a reviewer: {hint}")
    known = all_quarantines(settings.quarantines)
    others = frozenset(row.id for row in await database.fetch(connection, "quarantine_others", ids=list(known)))
    unspooling = "" if row.spools else f"{show(row.login)} may not spool mail: grant it pillarbox_application, too"
    principal = principal_of(connection)
    if principal is None:
        return Access(row.login, frozenset(row.roles), row.operator, unspooling, known, others)
    [its] = await database.fetch(connection, "acting_roles")
    if not its.reviewer:
        raise NotAllowed(f"{show(principal)} is not a reviewer; allowed: principals with the role reviewer or operator")
    if not unspooling and not its.sender:
        unspooling = f"{show(principal)} may not send mail; allowed: principals with the role sender, too"
    return Access(principal, frozenset({principal}), its.operator, unspooling, known, others)


class Narrowed(NamedTuple):
    """A condition that keeps to the quarantines that may be decided about, and its words."""

    asking: Query
    words: list[str]


async def narrowed(
    connection: database.Connection,
    access: Access,
    verb: str,
    words: Sequence[str],
    *,
    everything: bool = False,
    closing: bool = False,
    note: Callable[[str], object] = lambda _: None,
) -> Narrowed:
    """The condition of these words, kept to what may be acted on; refused where that leaves out what it names.

    Words that are numbers alone are recipients' ids, which must be held; those that are no longer go to `note`. Without
    words `everything` is needed. closing: what may not be decided about is left out instead of refused.
    """
    words = list(words)
    if not words and not everything:
        raise Refused(
            f"quarantine {verb}: a condition is missing; allowed: ids, a condition, or all held mail if that is said",
            f"quarantine {verb}: give ids or a condition, or --all for all that is held",
        )
    if words and all(word.isascii() and word.isdigit() for word in words):
        words = [await _ids(connection, verb, words, note)]
    words = named(words)
    asking = await asked(connection, words)
    closed = {name for name in access.quarantines if not access.may(name)}
    for row in await asking.fetch(connection, "quarantine_among"):
        if row.may and access.may(row.id):
            continue
        if closing:
            closed.add(row.id or "")
        else:
            raise NotAllowed(
                f"quarantine {verb}: {access.refusal(row.id)}; "
                f"{how_many(row.recipients, 'matching recipient is', 'matching recipients are')} in it; "
                f"exclude them with quarantine!={row.id}"
            )
    if closed:
        among = [f'quarantine!="{name}"' if name else "quarantine!=" for name in sorted(closed)]
        words = ["(", *words, ")", *among] if words else among
        asking = await asked(connection, words)
    return Narrowed(asking, words)


async def _ids(connection: database.Connection, verb: str, words: Sequence[str], note: Callable[[str], object]) -> str:
    """The condition for these recipients; refused where one was never there, or where none is held."""
    ids = sorted({int(word) if is_recipient(word) else _LARGEST + 1 for word in words})
    if ids[-1] > _LARGEST or len(ids) > _MOST_IDS:
        raise Refused(f"quarantine {verb}: allowed: up to {_MOST_IDS} ids, each at most {_LARGEST}")
    places = {row.id: row for row in await database.fetch(connection, "quarantine_places", ids=ids)}
    unknown = [each for each in ids if each not in places]
    if unknown:
        which = f"recipient {_listed(unknown)} does" if len(unknown) == 1 else f"recipients {_listed(unknown)} do"
        raise NotThere(f"quarantine {verb}: {which} not exist")
    elsewhere = [f"{row.id} is {_where(row)}" for row in places.values() if row.state != "HOLD"]
    if len(elsewhere) == len(ids):
        raise NotNow(f"quarantine {verb}: not held: {'; '.join(elsewhere[:10])}")
    if elsewhere:
        note(f"no longer held, skipped: {'; '.join(elsewhere[:10])}")
    return "id=" + ",".join(str(each) for each in ids if places[each].state == "HOLD")


def _where(row: database.Row) -> str:
    return f"finished ({row.state}) since {to_the_second(row.finished)}" if row.finished else row.state


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:10]))
