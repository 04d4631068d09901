"""peers — makes other people's programs available to the tests

Owns: .tools/bin (wrappers) and .tools/postfix, .tools/swaks, .tools/pgbouncer (unpacked Debian packages); nothing
    outside the checkout.
Called by: `make peers` and `make test`, as `python -m scripts.peers`; tests/fixtures/peers.py asks `find_peer`.
Guarantees: a program the system has is used as it is; otherwise Debian's package is unpacked without installing a mail
    server, needs no root, and counts as found only when the program really starts.
Raises: nothing; a program that cannot be had is one line on standard error and exit status 1.
See: smtp-source(1), smtp-sink(1), swaks(1), pgbouncer(1).
Bugs: run as root, smtp-sink wants `-u nobody`. Elsewhere than on Debian and Ubuntu the programs are for you to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TOOLS: Final = ROOT / ".tools"

# Each program, the Debian package that carries it, and where it lies in there.
PEERS: Final = {
    "smtp-source": ("postfix", "usr/sbin/smtp-source"),
    "smtp-sink": ("postfix", "usr/sbin/smtp-sink"),
    "swaks": ("swaks", "usr/bin/swaks"),
    "pgbouncer": ("pgbouncer", "usr/sbin/pgbouncer"),
}

# Postfix's programs live outside an ordinary user's PATH.
_SYSTEM_FOLDERS: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/lib/postfix/sbin", "/usr/libexec/postfix")

# Paths are relative to the wrapper, so that a checkout may move. Postfix reads its settings from MAIL_CONFIG even in
# these two programs; one line is enough for them.
_WRAPPER: Final = """\
#!/bin/sh
tree=$(cd "$(dirname "$0")/../{package}" && pwd) || exit 127
for folder in "$tree"/usr/lib/postfix "$tree"/usr/lib/*-linux-gnu* "$tree"/lib/*-linux-gnu*; do
  [ -d "$folder" ] && LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}$folder"
done
export LD_LIBRARY_PATH MAIL_CONFIG="$tree"
exec "$tree/{program}" "$@"
"""


def find_peer(name: str) -> Path | None:
    """Where the program `name` (a key of PEERS) is on this machine; None when it is not.

    What we unpacked comes first: it is only there because the system's own was missing or did not start.
    """
    path = os.pathsep.join((str(TOOLS / "bin"), os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS))
    found = shutil.which(name, path=path)
    return None if found is None else Path(found)


def how_to_get(name: str) -> str:
    """One line that says what to install where `name` is missing."""
    package, _ = PEERS[name]
    return f"{name} is missing; run `make peers`, or install it (Debian, Ubuntu: apt-get install {package})"


def fetch(name: str) -> str | None:
    """Unpack the Debian package of `name` below .tools and write its wrapper; the reason when that fails, else None."""
    package, program = PEERS[name]
    tree = TOOLS / package
    wrapper = TOOLS / "bin" / name
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    draft = wrapper.with_suffix(".draft")
    draft.write_text(_WRAPPER.format(package=package, program=program), encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(wrapper)
    if starts(wrapper):  # another program's package brought this one along
        return None
    unpack = subprocess.run(  # noqa: S603 - our own script with names from PEERS
        ["/bin/sh", str(ROOT / "scripts" / "fetch_debs.sh"), str(tree), package],
        capture_output=True,
        text=True,
        check=False,
    )
    if unpack.returncode != 0:
        wrapper.unlink()
        return unpack.stderr.strip()
    (tree / "main.cf").write_text("compatibility_level = 3.6\n", encoding="utf-8")
    if not starts(wrapper):
        wrapper.unlink()
        return f"Debian's {package} was unpacked, but {name} does not start from there"
    return None


def starts(program: Path) -> bool:
    """Whether the program runs far enough to name itself: a missing library or Perl module shows here."""
    # Without arguments Postfix's programs print their usage; swaks would ask for a recipient.
    arguments = ["--version"] if program.name in {"swaks", "pgbouncer"} else []
    try:
        run = subprocess.run(  # noqa: S603 - a program from PEERS
            [str(program), *arguments], capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return program.name.encode() in (run.stdout + run.stderr).lower() and run.returncode in {0, 1}


def main() -> int:
    """Make every program of PEERS available; the exit status says whether all are."""
    missing = [name for name in PEERS if (found := find_peer(name)) is None or not starts(found)]
    if missing:
        print(f"pillarbox: fetching {', '.join(missing)} for the tests …", flush=True)
    status = 0
    for name in missing:
        reason = fetch(name)
        if reason is not None:
            print(f"pillarbox: {how_to_get(name)}; {reason}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
