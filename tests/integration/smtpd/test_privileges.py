"""test_privileges — after the ports are bound no right of root remains, or smtpd does not start

Owns: proofs about `user` and `group`. As root they change the account of a process; for other users they are refused.
See: smtpd/process/privileges.py; credentials(7).
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys

import pytest

from shared.errors import ConfigError
from smtpd.process.privileges import identity
from tests.fixtures.daemons.system import ROOT

ACCOUNT = "nobody"
ROOTED = os.geteuid() == 0

# The ids of a process after it has dropped privileges, and whether it can regain them.
_DROPPED = """
import json, os, sys
from pathlib import Path
from shared.errors import ConfigError
from shared.config.smtpd.settings import SmtpdConfig
from smtpd.connection import sockets
from smtpd.process import privileges
user, group = sys.argv[1], sys.argv[2] or None
[doors] = sockets.bind(SmtpdConfig.model_validate({"servers": [{"listeners": [{"port": 0}]}]}))
try:
    privileges.drop(privileges.identity(user, group))
except ConfigError as error:
    print(json.dumps({"refused": str(error)}))
    sys.exit()
try:
    os.setuid(0)
except PermissionError:
    back = False
else:
    back = True
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
found = {name: [int(word) for word in status[name].split()] for name in ("Uid", "Gid", "Groups")}
print(json.dumps({**found, "back": back, "listening": doors[0].door.getsockname()[1]}))
"""


def dropped(user: str, group: str = "") -> dict[str, object]:
    done = subprocess.run(
        (sys.executable, "-c", _DROPPED, user, group), cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_user_and_groups_are_changed_permanently() -> None:
    found = dropped(ACCOUNT)
    if not ROOTED:
        assert "only root can become nobody" in str(found["refused"])
        return
    account = pwd.getpwnam(ACCOUNT)
    assert found["Uid"] == [account.pw_uid] * 4
    assert found["Gid"] == [account.pw_gid] * 4
    assert found["Groups"] == sorted(set(os.getgrouplist(ACCOUNT, account.pw_gid)))
    assert found["back"] is False
    assert found["listening"]


def test_a_configured_group_replaces_the_groups_of_the_account() -> None:
    group = grp.getgrnam("daemon")
    found = dropped(ACCOUNT, "daemon")
    if not ROOTED:
        assert "only root" in str(found["refused"])
        return
    assert found["Gid"] == [group.gr_gid] * 4
    assert found["Groups"] == [group.gr_gid]


def test_keeping_the_same_user_needs_no_root() -> None:
    found = dropped(pwd.getpwuid(os.geteuid()).pw_name)
    assert found["Uid"] == [os.geteuid()] * 4


@pytest.mark.parametrize(
    ("user", "group", "words"),
    [
        ("pillarbox-absent", None, "user: account pillarbox-absent does not exist"),
        (ACCOUNT, "pillarbox-absent", "group: group pillarbox-absent does not exist"),
        (None, "daemon", "group: daemon is set without user"),
    ],
)
def test_an_unknown_account_is_one_line(user: str | None, group: str | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        identity(user, group)


def test_without_a_configured_user_no_privileges_are_dropped() -> None:
    assert identity(None, None) is None
