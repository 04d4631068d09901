"""account — the account of the embedded PostgreSQL, and its access to its files

Owns: the choice of an account when we are root (PostgreSQL refuses root), and the permission bits on the way.
Guarantees: without root nothing is chosen and nothing is changed. As root only search (o+x) is added to
directories on the way and reading (o+r, o+x for programs) to the server's own program files, never writing,
and every change is one INFO line.
Raises: DatabaseUnavailable when root has no account to run the server as. The same when a container runs us under a
    user id without an account and the database is still to be made: initdb does not run under such a user id. OSError
    from chmod.
Bugs: access control lists are not checked; a directory whose group is the account's must be searchable by it.
"""

from __future__ import annotations

import logging
import os
import pwd
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import DatabaseUnavailable
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_log = logging.getLogger("pillarbox.embedded")
_CANDIDATES = ("postgres", "nobody")  # the distributions' own account first; the account nobody exists everywhere


@dataclass(frozen=True, slots=True)
class Account:
    """A system account: its name for people, its numbers for the kernel."""

    name: str
    uid: int
    gid: int


def choose_account(data: Path) -> Account | None:
    """The account to run a server over `data` as; None means as ourselves, because we are not root.

    A data directory that exists keeps its owner, so that root can start what an unprivileged user made.
    """
    if (uid := os.geteuid()) != 0:
        if not data.exists() and _name_of(uid) is None:
            raise DatabaseUnavailable(
                f"PostgreSQL makes no database for user id {uid}, which has no account on this system; allowed: "
                "a user that has one, or a server that environment.database.uri names"
            )
        return None
    if data.exists() and (owner := data.stat()).st_uid != 0:
        return Account(_name_of(owner.st_uid) or f"uid {owner.st_uid}", owner.st_uid, owner.st_gid)
    for name in _CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise DatabaseUnavailable(
        "PostgreSQL does not run as root, and this system has no account "
        f"{' or '.join(_CANDIDATES)} to run it as; create one, or start Pillarbox as another user"
    )


def open_way(targets: Iterable[Path], account: Account) -> None:
    """Let `account` walk to each of `targets`: add o+x, and nothing more, to the directories above them."""
    above = {parent for target in targets for parent in target.resolve().parents}
    opened = [directory for directory in sorted(above) if _admit(directory, account, stat.S_IXOTH)]
    if opened:
        names = ", ".join(map(str, opened))
        _log.info("made searchable (o+x) so that PostgreSQL can run as %s: %s", account.name, names)


def open_programs(trees: Iterable[Path], account: Account) -> None:
    """Let `account` read the files under `trees` and run the programs among them."""
    changed = 0
    for tree in trees:
        for path in (tree, *tree.rglob("*")):
            if path.is_symlink():
                continue
            mode = path.stat().st_mode
            wanted = stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
            changed += _admit(path, account, wanted)
    if changed:
        _log.info("made readable (o+r) for %s: %s of PostgreSQL", account.name, how_many(changed, "program file"))


def _admit(path: Path, account: Account, wanted: int) -> bool:
    """Add the bits `wanted` (of the last octal digit) unless the account has them; True when it changed."""
    entry = path.stat()
    if entry.st_uid == account.uid:
        granted = entry.st_mode >> 6
    elif entry.st_gid == account.gid:
        granted = entry.st_mode >> 3
    else:
        granted = entry.st_mode
    if granted & wanted == wanted:
        return False
    path.chmod(stat.S_IMODE(entry.st_mode) | wanted)
    return True


def _name_of(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
