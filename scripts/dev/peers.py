"""peers — makes programs of other projects available to the tests

Owns: .tools/bin (wrappers) and .tools/postfix, .tools/swaks, … (unpacked Debian packages); nothing outside the
    checkout.
Guarantees: the system's own program is used if it starts; otherwise Debian's package is unpacked, without root and
    without installing a mail server. A program counts as found only if it starts.
Raises: PillarboxError from `need_peer`; otherwise a program that cannot be installed is one line on standard error and
    exit status 1.
See: smtp-source(1), smtp-sink(1), swaks(1), curl(1), msmtp(1), https://nodemailer.com, pgbouncer(1), faketime(1).
Bugs: run as root, smtp-sink requires `-u nobody`. On systems other than Debian and Ubuntu, install the programs
    yourself.
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
    """The package of a program, and a call that proves that it starts."""

    package: str  # Debian's
    program: str  # its path in the package
    besides: tuple[str, ...] = ()  # packages that are not among its libraries
    arguments: tuple[str, ...] = ("--version",)
    says: str = ""  # expected output in lower case; the program's name if empty


PEERS: Final = {
    # Without arguments Postfix's programs print their usage.
    "smtp-source": Peer("postfix", "usr/sbin/smtp-source", arguments=()),
    "smtp-sink": Peer("postfix", "usr/sbin/smtp-sink", arguments=()),
    # Without a recipient swaks asks for one; without Perl's OpenSSL it does not support TLS.
    "swaks": Peer("swaks", "usr/bin/swaks", ("libnet-ssleay-perl",), ("--support",), "=== tls supported"),
    "curl": Peer("curl", "usr/bin/curl"),
    "msmtp": Peer("msmtp", "usr/bin/msmtp"),
    # Not a program but a library, which node loads.
    "nodemailer": Peer(
        "node-nodemailer", "usr/bin/node", ("nodejs",), ("-p", "require('nodemailer/package.json').name")
    ),
    "pgbouncer": Peer("pgbouncer", "usr/sbin/pgbouncer"),
    # Evaluates our sample alerts as Prometheus does.
    "promtool": Peer("prometheus", "usr/bin/promtool"),
    # Answers the queries of our dashboard.
    "prometheus": Peer("prometheus", "usr/bin/prometheus"),
    # Mail::DKIM's verifier supports RSA only.
    "dkimproxy-verify": Peer("libmail-dkim-perl", "usr/bin/dkimproxy-verify", arguments=("--help",)),
}


@dataclass(frozen=True, slots=True)
class Library:
    """A library to preload (ld.so(8)): its package, its path, and a call that proves that it works."""

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

# Postfix's programs are outside an ordinary user's PATH.
_SYSTEM_FOLDERS: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/lib/postfix/sbin", "/usr/libexec/postfix")

# Paths are relative to the wrapper, so that a checkout can be moved. These two Postfix programs also read MAIL_CONFIG;
# one line suffices.
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
    """The path of the program `name` (a key of PEERS) on this machine; None if it is missing.

    An unpacked program comes first: it exists only because the system's own was missing or did not start.
    """
    path = os.pathsep.join((str(TOOLS / "bin"), os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS))
    found = shutil.which(name, path=path)
    return None if found is None else Path(found)


def need_peer(name: str) -> Path:
    """The path of the program; PillarboxError if it is missing."""
    found = find_peer(name)
    if found is None:
        raise PillarboxError(how_to_get(name))
    return found


def find_library(name: str) -> Path | None:
    """The path of the library `name` (a key of LIBRARIES); None if it is missing or preloading it has no effect."""
    library = LIBRARIES[name]
    for root in (TOOLS / library.package, Path("/")):
        for found in (found for pattern in library.files for found in sorted(root.glob(pattern))):
            if preloads(library, found):
                return found
    return None


def preloads(library: Library, file: Path) -> bool:
    """Whether preloading the library has its effect on a program."""
    environment = {**os.environ, **dict(library.environment), "LD_PRELOAD": str(file)}
    try:
        run = subprocess.run(  # noqa: S603 - a program from LIBRARIES
            library.program, env=environment, capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return library.says in run.stdout


def how_to_get(name: str) -> str:
    """One line that says what to install if `name` is missing."""
    known: Peer | Library = PEERS[name] if name in PEERS else LIBRARIES[name]
    packages = " ".join((known.package, *(known.besides if isinstance(known, Peer) else ())))
    return f"{name} is missing; run `make peers`, or install it (Debian, Ubuntu: apt-get install {packages})"


def fetch(name: str) -> str | None:
    """Unpack the Debian package of `name` below .tools and write its wrapper; the reason of a failure, else None."""
    peer = PEERS[name]
    tree = TOOLS / peer.package
    wrapper = TOOLS / "bin" / name
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    draft = wrapper.with_suffix(".draft")
    draft.write_text(_WRAPPER.format(package=peer.package, program=peer.program), encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(wrapper)
    if starts(wrapper):  # another program's package contained this one
        return None
    reason = _unpack(tree, peer.package, *_besides(peer))
    if reason is not None:
        wrapper.unlink()
        return reason
    (tree / "main.cf").write_text("compatibility_level = 3.6\n", encoding="utf-8")
    if not starts(wrapper):
        wrapper.unlink()
        return f"Debian's {peer.package} was unpacked, but its {name} does not start"
    return None


def fetch_library(name: str) -> str | None:
    """Unpack the Debian package of the library `name` below .tools; the reason of a failure, else None."""
    package = LIBRARIES[name].package
    reason = _unpack(TOOLS / package, package)
    if reason is None and find_library(name) is None:
        return f"Debian's {package} was unpacked, but preloading {name} has no effect"
    return reason


def _unpack(tree: Path, *packages: str) -> str | None:
    """Unpack these packages into the folder `tree`; the reason of a failure, else None."""
    unpack = subprocess.run(  # noqa: S603 - our own script with names from PEERS and LIBRARIES
        ["/bin/sh", str(ROOT / "scripts" / "dev" / "fetch_debs.sh"), str(tree), *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    return unpack.stderr.strip() if unpack.returncode != 0 else None


def starts(program: Path) -> bool:
    """Whether the program starts and prints the expected output: it does not if a library or Perl module is missing."""
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
    """The further packages to unpack, without node if the system has one from any source."""
    return [package for package in peer.besides if package != "nodejs" or shutil.which("node") is None]


def main() -> int:
    """Provide every program of PEERS and every library; the exit status is 1 if one is missing."""
    missing = [name for name in PEERS if (found := find_peer(name)) is None or not starts(found)]
    missing += [name for name in LIBRARIES if find_library(name) is None]
    if missing:
        print(f"pillarbox: downloading {', '.join(missing)} for the tests …", flush=True)
    status = 0
    for name in missing:
        reason = fetch(name) if name in PEERS else fetch_library(name)
        if reason is not None:
            print(f"pillarbox: {how_to_get(name)}; {reason}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
