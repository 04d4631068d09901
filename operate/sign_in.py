"""sign-in — people who use the console: one-time links, passwords and sessions

Owns: the form of what a link and a cookie show, and their digests; making and using a link; beginning, finding and
    ending sessions; counting sign-ins that fail, for all processes of httpd.
Guarantees: what is shown is 256 random bits, and only its SHA-256 is kept. A link sets a password once and ends every
    session of its person. A session begins only for the password hash that was compared, or for whom the identity
    provider has named, and is over with the password,
    after its time, when idle for too long, and as soon as its person is disabled.
Raises: NotThere, NotNow, Refused.
See: sql/schema/23_web.sql; sql/README.md, "Signing in".
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from operate.condition.ids import named
from operate.condition.words import words_of
from operate.errors import NotNow, NotThere, Refused
from operate.shapes.settings import SignInLink
from shared.config.condition.read import read
from shared.how_many import how_many
from shared.masking import show
from shared.postgres import database, timeline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

_OCTETS: Final = 32
_DECIDED: Final = "this link was used, or has expired; sign in to decide"
LEAST_PASSWORD: Final = 12  # characters
MOST_PASSWORD: Final = 200
MOST_VIEWS: Final = 50  # of one person
LONGEST_NAME: Final = 60  # characters of a view's
FIRST: Final = "admin"  # the person whom the first link makes
_FIRST: Final[dict[str, Any]] = {"kind": "person", "roles": ["admin"], "disabled": False, "senders": []}


class Session(NamedTuple):
    """A session that is valid, and its person.

    seal: the key of what is signed for this session alone. timeline: of the server that found it, by which the ids of a
    page are known; empty from a server in recovery.
    """

    id: int
    seal: bytes
    principal: str
    roles: frozenset[str]
    timeline: str = ""


class Limit(NamedTuple):
    """At most so many sign-ins that fail in `span`, of one name or one address."""

    of: str
    most: int
    span: timedelta


class Begun(NamedTuple):
    """A session that has just begun, and what its cookie shows."""

    id: int
    cookie: str


def digest(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


async def link(connection: database.Connection, principal: str, keep: timedelta, url: str) -> SignInLink:
    """Make the one link of a person, by which a password is chosen; the first person there is becomes an admin.

    url: where the console is; the token goes behind it.
    """
    token = secrets.token_urlsafe(_OCTETS)
    async with connection.transaction():
        known = await database.fetch(connection, "web_person", principal=principal)
        if not known:
            [admins] = await database.fetch(connection, "web_admins")
            if admins.any:
                why = f"principal {show(principal)} does not exist"
                raise NotThere(why, f"NAME: {why}; `pillarbox principal add` adds one")
            await database.fetch(connection, "principal_add", name=principal, values=json.dumps(_FIRST))
        elif known[0].kind != "person":
            raise Refused(f"{show(principal)} is an application; allowed: a person, who signs in with a password")
        elif known[0].disabled:
            raise NotNow(f"{show(principal)} is disabled; `pillarbox principal change {principal} --enable` allows it")
        [row] = await database.fetch(connection, "web_link_add", digest=digest(token), principal=principal, keep=keep)
    return SignInLink(
        principal=principal, made_admin=not known, url=f"{url}/console/link?token={token}", expires=row.expires
    )


async def link_of(connection: database.Connection, token: str) -> tuple[str, datetime]:
    """Whose link this is, and until when."""
    rows = await database.fetch(connection, "web_link_find", digest=digest(token))
    if not rows:
        raise NotThere("this link was used, has expired, or was replaced by a later one")
    return rows[0].principal, rows[0].expires


async def use_link(connection: database.Connection, token: str, argon2: str) -> str:
    """Give the person of this link a password by its hash; who it is."""
    rows = await database.fetch(connection, "web_link_use", digest=digest(token), argon2=argon2)
    if not rows:
        raise NotThere("this link was used, has expired, or was replaced by a later one")
    person: str = rows[0].principal
    return person


def checked_password(text: str, again: str) -> str:
    """A new password, typed twice."""
    if not LEAST_PASSWORD <= len(text) <= MOST_PASSWORD:
        has = how_many(len(text), "character")
        raise Refused(f"the password has {has}; allowed: {LEAST_PASSWORD} to {MOST_PASSWORD}")
    if text != again:
        raise Refused("the passwords differ; type the same twice")
    return text


async def hash_of(connection: database.Connection, principal: str) -> str | None:
    """The hash of a person's password, if that person may sign in."""
    rows = await database.fetch(connection, "web_password", principal=principal)
    return rows[0].argon2 if rows else None


class Decision(NamedTuple):
    """What a link of a digest is about, and who decides by it."""

    principal: str
    recipient: int
    message: UUID


async def decision_of(connection: database.Connection, token: str) -> tuple[Decision, datetime]:
    """What this link is about, and until when it works."""
    rows = await database.fetch(connection, "web_decision", digest=digest(token))
    if not rows:
        raise NotThere(_DECIDED)
    return Decision(*rows[0][:3]), rows[0].expires


async def use_decision(connection: database.Connection, token: str) -> Decision:
    """Use a link of a digest: it works no more."""
    rows = await database.fetch(connection, "web_decision_use", digest=digest(token))
    if not rows:
        raise NotThere(_DECIDED)
    return Decision(*rows[0])


async def count(connection: database.Connection, limits: Sequence[Limit]) -> float:
    """Count a sign-in before it is judged; the seconds until it would be allowed, 0 where it is."""
    if not limits:
        return 0.0
    [row] = await database.fetch(connection, "web_failure", **_counted(limits))
    wait: float = row.wait
    return wait


async def give_back(connection: database.Connection, limits: Sequence[Limit]) -> None:
    """A sign-in that was counted was right."""
    if limits:
        await database.fetch(connection, "web_failure_none", **_counted(limits))


def _counted(limits: Sequence[Limit]) -> dict[str, Any]:
    return {
        "digests": [digest(each.of) for each in limits],
        "most": [each.most for each in limits],
        "span": limits[0].span,
    }


async def first_link(connection: database.Connection, keep: timedelta, url: str) -> SignInLink | None:
    """A link for the admin `admin` as long as no admin has a password; None: somebody can sign in, or let others in."""
    [some] = await database.fetch(connection, "web_passwords_any")
    if some.any:
        return None
    try:
        return await link(connection, FIRST, keep, url)
    except (NotThere, NotNow, Refused):
        return None  # admins have other names here


async def begin(
    connection: database.Connection, principal: str, argon2: str, span: timedelta, address: str, agent: str
) -> Begun | None:
    """Begin a session; None where the password was changed, or the person disabled, since it was compared."""
    values = {"principal": principal, "argon2": argon2, "span": span, "address": address, "agent": agent}
    return await _begun(connection, "web_session_begin", values)


async def begin_named(
    connection: database.Connection, principal: str, span: timedelta, address: str, agent: str
) -> Begun | None:
    """Begin a session for the person whom the identity provider names; None if that person may not sign in."""
    values = {"principal": principal, "span": span, "address": address, "agent": agent}
    return await _begun(connection, "web_session_begin_named", values)


async def _begun(connection: database.Connection, query: str, values: dict[str, Any]) -> Begun | None:
    cookie = secrets.token_urlsafe(_OCTETS)
    values |= {"agent": _printable(values["agent"]), "digest": digest(cookie), "seal": secrets.token_bytes(_OCTETS)}
    rows = await database.fetch(connection, query, **values)
    return Begun(rows[0].id, cookie) if rows else None


async def find(
    connection: database.Connection, idle: timedelta, *, cookie: str | None = None, number: int | None = None
) -> Session | None:
    """The session of a cookie, or with this number, if it is valid; by its cookie it counts as used."""
    kept = None if cookie is None else digest(cookie)
    rows = await database.fetch(connection, "web_session_find", digest=kept, number=number, idle=idle)
    if not rows:
        return None
    [row] = rows
    if cookie is not None:
        await database.fetch(connection, "web_session_seen", number=row.id)
    now = await timeline.current(connection)
    return Session(row.id, bytes(row.seal), row.principal, frozenset(row.roles), now or "")


async def own(connection: database.Connection) -> list[database.Row]:
    """The sessions of whom we act for, the latest first."""
    return await database.fetch(connection, "web_sessions_own")


async def end(connection: database.Connection, number: int | None) -> int:
    """End a session of whom we act for, or with None all of them; how many."""
    [row] = await database.fetch(connection, "web_sessions_end", number=number)
    ended: int = row.ended
    return ended


async def views(connection: database.Connection) -> list[database.Row]:
    """What whom we act for has kept of the queue, by name."""
    return await database.fetch(connection, "web_views")


async def keep_view(connection: database.Connection, name: str, condition: str, by: str) -> None:
    """Keep a view for whom we act for, in place of one of the same name."""
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise Refused(f"name: {show(name[:60])}; allowed: 1 to {LONGEST_NAME} printable characters")
    read(named(words_of(condition)))
    [row] = await database.fetch(connection, "web_view_keep", name=name, condition=condition, by=by, most=MOST_VIEWS)
    if not row.kept:
        raise Refused(f"you keep {MOST_VIEWS} views already; forget one first")


async def forget_view(connection: database.Connection, name: str) -> None:
    """Forget a view of whom we act for."""
    await database.fetch(connection, "web_view_forget", name=name)


def _printable(text: str) -> str:
    return "".join(each for each in text if each.isprintable())[:200]
