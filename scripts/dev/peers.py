"""peers — makes programs of other projects available to the tests

Owns: .tools/bin (wrappers) and .tools/postfix, .tools/swaks, … (unpacked Debian packages); nothing outside the
    checkout.
Guarantees: a program the system has is used as it is; otherwise Debian's package is unpacked without installing a mail
    server, needs no root, and counts as found only when the program really starts.
Raises: PillarboxError from `need_peer`; else a program that cannot be installed is one line on standard error and exit
    status 1.
See: smtp-source(1), smtp-sink(1), swaks(1), curl(1), msmtp(1), https://nodemailer.com, pgbouncer(1), faketime(1).
Bugs: run as root, smtp-sink wants `-u nobody`. Elsewhere than on Debian and Ubuntu the programs are for you to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.errors import PillarboxError

ROOT: Final = Path(__file__).resolve().parents[2]
TOOLS: Final = ROOT / ".tools"


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a program comes from, and what it says of itself when it really starts."""

    package: str  # Debian's
    program: str  # its path in the package
    besides: tuple[str, ...] = ()  # packages it does not pull in as libraries
    arguments: tuple[str, ...] = ("--version",)
    says: str = ""  # in lower case; its own name when empty


PEERS: Final = {
    # Without arguments Postfix's programs print their usage.
    "smtp-source": Peer("postfix", "usr/sbin/smtp-source", arguments=()),
    "smtp-sink": Peer("postfix", "usr/sbin/smtp-sink", arguments=()),
    # Without a recipient swaks asks for one; without Perl's OpenSSL it speaks no TLS.
    "swaks": Peer("swaks", "usr/bin/swaks", ("libnet-ssleay-perl",), ("--support",), "=== tls supported"),
    "curl": Peer("curl", "usr/bin/curl"),
    "msmtp": Peer("msmtp", "usr/bin/msmtp"),
    # Not a program but a library; what runs is node, which finds it.
    "nodemailer": Peer(
        "node-nodemailer", "usr/bin/node", ("nodejs",), ("-p", "require('nodemailer/package.json').name")
    ),
    "pgbouncer": Peer("pgbouncer", "usr/sbin/pgbouncer"),
    # Evaluates our sample alerts as Prometheus does.
    "promtool": Peer("prometheus", "usr/bin/promtool"),
    # Mail::DKIM's verifier knows RSA only.
    "dkimproxy-verify": Peer("libmail-dkim-perl", "usr/bin/dkimproxy-verify", arguments=("--help",)),
}


@dataclass(frozen=True, slots=True)
class Library:
    """A library to preload (ld.so(8)): its package, its path in there, and a proof that it works."""

    package: str  # Debian's
    files: tuple[str, ...]  # patterns; the folder's name depends on the processor and the distribution
    program: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    says: str


LIBRARIES: Final = {
    "libfaketime": Library(
        "libfaketime",
        ("usr/lib/*/faketime/libfaketime.so.1", "usr/lib*/faketime/libfaketime.so.1"),
        ("date", "-u", "+%Y"),
        (("FAKETIME", "@2001-01-01 00:00:00"), ("TZ", "UTC")),
        "2001",
    ),
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
for folder in "$tree"/usr/lib/*-linux-gnu*/perl5/5.* "$tree"/usr/share/perl5; do
  [ -d "$folder" ] && PERL5LIB="${{PERL5LIB:+$PERL5LIB:}}$folder"
done
export LD_LIBRARY_PATH PERL5LIB MAIL_CONFIG="$tree" NODE_PATH="$tree/usr/share/nodejs"
program=$tree/{program}
[ -x "$program" ] || program=$(command -v "${{program##*/}}") || exit 127
exec "$program" "$@"
"""


def find_peer(name: str) -> Path | None:
    """Where the program `name` (a key of PEERS) is on this machine; None when it is not.

    What we unpacked comes first: it is only there because the system's own was missing or did not start.
    """
    path = os.pathsep.join((str(TOOLS / "bin"), os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS))
    found = shutil.which(name, path=path)
    return None if found is None else Path(found)


def need_peer(name: str) -> Path:
    """The same, for callers that cannot go on without it."""
    found = find_peer(name)
    if found is None:
        raise PillarboxError(how_to_get(name))
    return found


def find_library(name: str) -> Path | None:
    """Where the library `name` (a key of LIBRARIES) is; None when it is missing, or does nothing when preloaded."""
    library = LIBRARIES[name]
    for root in (TOOLS / library.package, Path("/")):
        for found in (found for pattern in library.files for found in sorted(root.glob(pattern))):
            if preloads(library, found):
                return found
    return None


def preloads(library: Library, file: Path) -> bool:
    """Whether it does its work in a program that preloads it."""
    environment = {**os.environ, **dict(library.environment), "LD_PRELOAD": str(file)}
    try:
        run = subprocess.run(  # noqa: S603 - a program from LIBRARIES
            library.program, env=environment, capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return library.says in run.stdout


def how_to_get(name: str) -> str:
    """One line that says what to install where `name` is missing."""
    known: Peer | Library = PEERS[name] if name in PEERS else LIBRARIES[name]
    packages = " ".join((known.package, *(known.besides if isinstance(known, Peer) else ())))
    return f"{name} is missing; run `make peers`, or install it (Debian, Ubuntu: apt-get install {packages})"


def fetch(name: str) -> str | None:
    """Unpack the Debian package of `name` below .tools and write its wrapper; the reason when that fails, else None."""
    peer = PEERS[name]
    tree = TOOLS / peer.package
    wrapper = TOOLS / "bin" / name
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    draft = wrapper.with_suffix(".draft")
    draft.write_text(_WRAPPER.format(package=peer.package, program=peer.program), encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(wrapper)
    if starts(wrapper):  # another program's package brought this one along
        return None
    reason = _unpack(tree, peer.package, *_besides(peer))
    if reason is not None:
        wrapper.unlink()
        return reason
    (tree / "main.cf").write_text("compatibility_level = 3.6\n", encoding="utf-8")
    if not starts(wrapper):
        wrapper.unlink()
        return f"Debian's {peer.package} was unpacked, but {name} does not start from there"
    return None


def fetch_library(name: str) -> str | None:
    """Unpack the Debian package of the library `name` below .tools; the reason when that fails, else None."""
    package = LIBRARIES[name].package
    reason = _unpack(TOOLS / package, package)
    if reason is None and find_library(name) is None:
        return f"Debian's {package} was unpacked, but a program that preloads {name} does not feel it"
    return reason


def _unpack(tree: Path, *packages: str) -> str | None:
    """Unpack these into the folder `tree`; the reason when that fails, else None."""
    unpack = subprocess.run(  # noqa: S603 - our own script with names from PEERS and LIBRARIES
        ["/bin/sh", str(ROOT / "scripts" / "dev" / "fetch_debs.sh"), str(tree), *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    return unpack.stderr.strip() if unpack.returncode != 0 else None


def starts(program: Path) -> bool:
    """Whether the program runs far enough to say what it should: a missing library or Perl module shows here."""
    peer = PEERS[program.name]
    try:
        run = subprocess.run(  # noqa: S603 - a program from PEERS
            [str(program), *peer.arguments], capture_output=True, stdin=subprocess.DEVNULL, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    said = (run.stdout + run.stderr).decode(errors="replace").lower()
    return (peer.says or program.name) in said and run.returncode in {0, 1}


def _besides(peer: Peer) -> list[str]:
    """The packages to unpack beside it: not node where the system has one, perhaps from elsewhere than Debian."""
    return [package for package in peer.besides if package != "nodejs" or shutil.which("node") is None]


def main() -> int:
    """Make every program of PEERS, and every library, available; the exit status says whether all are."""
    missing = [name for name in PEERS if (found := find_peer(name)) is None or not starts(found)]
    missing += [name for name in LIBRARIES if find_library(name) is None]
    if missing:
        print(f"pillarbox: fetching {', '.join(missing)} for the tests …", flush=True)
    status = 0
    for name in missing:
        reason = fetch(name) if name in PEERS else fetch_library(name)
        if reason is not None:
            print(f"pillarbox: {how_to_get(name)}; {reason}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
