"""test_deb — the Debian package installs below another root, with its user, directories, units and sendmail

Guarantees: dpkg itself installs it and runs its scripts, below another root than this machine's; what is installed
    works there, and no file names the folder in which it was built.
Needs: dpkg, systemd-sysusers, a package index for pip, and to be root. Built with the Python of the tests, not
    Debian's.
Bugs: nothing starts the units; tests/unit/pages/test_unit_files.py reads them.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAMS: Final = ("dpkg", "dpkg-deb", "systemd-sysusers", "systemd-tmpfiles")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root only"),
    pytest.mark.skipif(not all(map(shutil.which, _PROGRAMS)), reason="not a Debian with systemd"),
]


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that has to end well."""
    done = subprocess.run(
        words, env={**os.environ, **environment}, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, as `make deb` builds it."""
    folder = tmp_path_factory.mktemp("deb")
    python = Path(sys.executable).resolve()
    said = run("sh", ROOT / "scripts/dev/deb.sh", folder, PYTHON=str(python)).stdout
    [made] = folder.iterdir()
    assert said == f"{made}\n"
    return made


@pytest.fixture(scope="module")
def machine(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a machine on which it is installed."""
    root = tmp_path_factory.mktemp("machine")
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "var/lib/dpkg/status").touch()
    # The machine has nothing else, so its scripts are run from outside, and what the package needs is not there.
    options = ("--force-script-chrootless", "--force-depends", "--log=/dev/null", "--no-triggers")
    done = run("dpkg", f"--root={root}", *options, "-i", package)
    assert "next: pillarbox init /etc/pillarbox" in done.stdout
    return root


def test_the_user_and_the_directories_are_made(machine: Path) -> None:
    [line] = [line for line in (machine / "etc/passwd").read_text().splitlines() if line.startswith("pillarbox:")]
    _, _, uid, _, _, home, shell = line.split(":")
    assert (home, shell) == ("/var/lib/pillarbox", "/usr/sbin/nologin")
    for place, mode, owner in (
        ("etc/pillarbox", 0o750, 0),
        ("var/lib/pillarbox", 0o750, int(uid)),
        ("var/spool/pillarbox", 0o1733, int(uid)),
    ):
        found = (machine / place).stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (mode, owner), place


def test_what_units_and_programs_name_is_installed(machine: Path) -> None:
    units = sorted(path.name for path in (machine / "usr/lib/systemd/system").iterdir())
    assert units == sorted(path.name for path in (ROOT / "deploy").iterdir() if path.suffix in {".service", ".timer"})
    for name in units:
        text = (machine / "usr/lib/systemd/system" / name).read_text()
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key == "Documentation":
                assert (machine / value.removeprefix("file:///")).exists(), line
            if key == "ExecStart":
                program = machine / value.split()[0].removeprefix("/")
                assert program.exists() or program.is_symlink(), line
    first = (machine / "opt/pillarbox/.venv/bin/pillarbox").read_text().splitlines()[0]
    assert first == "#!/opt/pillarbox/.venv/bin/python"
    assert (machine / "usr/bin/pillarbox").readlink() == Path("/opt/pillarbox/.venv/bin/pillarbox")
    assert {(machine / "usr/bin" / name).readlink() for name in ("mailq", "newaliases")} == {Path("../sbin/sendmail")}


def test_no_file_names_the_folder_where_it_was_built(machine: Path) -> None:
    found = subprocess.run(
        [
            "grep",
            "-rlIF",
            "-e",
            str(ROOT),
            "-e",
            "/tree/opt/pillarbox",
            machine / "opt",
            machine / "usr",
            machine / "etc",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (1, "")


def test_the_installed_program_works(machine: Path, tmp_path: Path) -> None:
    python = machine / "opt/pillarbox/.venv/bin/python"
    assert run(python, "-m", "scripts.cli", "--version").stdout == "pillarbox 0.1.0\n"
    folder = tmp_path / "spool"
    folder.mkdir()
    words = ("--server", "127.0.0.1:1", "--spool", str(folder), "root@example.com")
    done = subprocess.run(
        [python, "-m", "scripts.cli", "sendmail", *words],
        input=b"disk full\n",
        cwd="/",
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    [kept] = folder.iterdir()
    assert b"disk full\r\n" in kept.read_bytes()


def test_it_is_removed_without_the_spool_and_the_configuration(machine: Path) -> None:
    kept = machine / "etc/pillarbox/smtpd.yaml"
    kept.touch()
    run("dpkg", f"--root={machine}", "--force-script-chrootless", "--log=/dev/null", "--no-triggers", "-r", "pillarbox")
    assert kept.exists()
    assert (machine / "var/spool/pillarbox").is_dir()
    assert not (machine / "opt/pillarbox/.venv/bin/pillarbox").exists()
