"""privileges — changes to an ordinary account once the ports are bound

Owns: the keys `user` and `group`.
Guarantees: all three of supplementary groups, group and user change, for good, or smtpd does not start. Processes
    started later are that account's too: none of smtpd keeps root.
Raises: ConfigError for an account that does not exist, or when we are not root and so cannot become another.
See: setresuid(2), setgroups(2)
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import NamedTuple

from shared.errors import ConfigError
from shared.observe import events


class RunAs(NamedTuple):
    """The account to become."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]


def identity(user: str | None, group: str | None) -> RunAs | None:
    """The account that the keys name; None when they name none."""
    if user is None:
        if group is not None:
            raise ConfigError(f"group: {group} is set without user; allowed: both, or user alone, or neither")
        return None
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"user: account {user} does not exist; allowed: the name of an account") from None
    if group is None:
        return RunAs(user, account.pw_uid, account.pw_gid, tuple(os.getgrouplist(user, account.pw_gid)))
    try:
        gid = grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(f"group: group {group} does not exist; allowed: the name of a group") from None
    return RunAs(user, account.pw_uid, gid, (gid,))


def drop(wanted: RunAs | None, file: str = "smtpd.yaml") -> None:
    """Become this account; without one stay the account that started us, with a warning if that is root."""
    if wanted is None:
        if os.geteuid() == 0:
            events.emit("daemon.privileged", hint=f"set user in {file} to an account without privileges")
        return
    if os.getuid() == os.geteuid() == wanted.uid and os.getegid() == wanted.gid:
        return
    if os.geteuid() != 0:
        raise ConfigError(f"user: only root can become {wanted.name}; allowed: start as root, or leave user out")
    os.setgroups(wanted.groups)
    os.setresgid(wanted.gid, wanted.gid, wanted.gid)
    os.setresuid(wanted.uid, wanted.uid, wanted.uid)
