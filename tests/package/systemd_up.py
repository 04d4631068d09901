"""systemd_up — installs the Debian package on a machine that systemd has booted, and sends mail through its units

Run by `make systemd-test`, as root, on a host with Docker. The machine is a container of Debian 13 with PostgreSQL,
whose first process is systemd and which has no network but its own loopback.
Guarantees: exit status 0 only if the package was built and installed, the commands of install-the-debian-package.md
    ended as they say, every unit became active under its restrictions, and all mail that smtpd or sendmail(1) took has
    arrived at the end: around kill -9 of each daemon, a reload, and a stop of smtpd. The last line says how much.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.package.docker import ROOT, docker, expect, make_bases, run

if TYPE_CHECKING:
    from collections.abc import Iterator

_IMAGE: Final = "pillarbox-systemd:trixie"
_DOCKERFILE: Final = """\
FROM pillarbox-base:trixie
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    systemd systemd-sysv dbus postgresql sudo
CMD ["/lib/systemd/systemd"]
"""
#: What systemd needs to mount and to make groups of processes: nearly --privileged, which not every host can give.
_RIGHTS: Final = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--security-opt", "apparmor=unconfined"),
    *("--security-opt", "seccomp=unconfined", "-v", "/sys/fs/cgroup:/sys/fs/cgroup:rw"),
)
_UNITS: Final = ("pillarbox-smtpd", "pillarbox-queued@queued-123", "pillarbox-queued@queued-456", "pillarbox-httpd")
_SEVEREST: Final = 20  # of `systemd-analyze security`, in tenths
_SUBMIT: Final = """\
import smtplib, sys
with smtplib.SMTP("127.0.0.1", 25, timeout=60) as client:
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        client.sendmail("a@a.example", [f"u{number}@example.net"], f"Subject: {number}\\r\\n\\r\\nx\\r\\n")
"""


def say(text: str) -> None:
    """Progress."""
    print(f"systemd-test: {text}", flush=True)


class Machine:
    """A container that systemd has booted."""

    def __init__(self, container: str) -> None:
        self._container = container
        self.sent = 0  # messages that were taken

    def run(self, *words: str, check: bool = True, stdin: str = "") -> str:
        """What a command says there, as root."""
        return run("docker", "exec", "-i", self._container, *words, check=check, stdin=stdin)

    def shell(self, line: str) -> str:
        """As a page has it."""
        return self.run("sh", "-ec", line)

    def is_active(self, unit: str) -> bool:
        """Whether systemd says so."""
        return self.run("systemctl", "is-active", unit, check=False).strip() == "active"

    def shown(self, unit: str, name: str) -> str:
        """One of `systemctl show`."""
        return self.run("systemctl", "show", "-P", name, unit).strip()

    def submit(self, count: int) -> None:
        """So many messages by SMTP, each accepted."""
        self.run("python3", "-c", _SUBMIT, str(self.sent), str(self.sent + count))
        self.sent += count

    def sendmail(self) -> None:
        """Give one message to the program sendmail, as the account `nobody`, which has no rights."""
        recipient = f"u{self.sent}@example.net"
        self.run("sudo", "-u", "nobody", "/usr/sbin/sendmail", recipient, stdin=f"Subject: {self.sent}\n\nx\n")
        self.sent += 1

    def arrived(self) -> list[str]:
        """The recipients that the sink took."""
        lines = self.run("cat", "/srv/sink.jsonl", check=False).splitlines()
        return [recipient for line in lines for recipient in json.loads(line)["recipients"]]

    def missing(self) -> int:
        """How many messages were taken and have not arrived."""
        return self.sent - len({each for each in self.arrived() if each.endswith("@example.net")})

    def killed(self, unit: str) -> None:
        """SIGKILL for its first process; systemd has to start it again."""
        before = self.shown(unit, "MainPID")
        self.run("systemctl", "kill", "--kill-whom=main", "-s", "KILL", unit)
        expect(f"{unit} runs again", lambda: self.is_active(unit) and self.shown(unit, "MainPID") not in {before, "0"})


@contextmanager
def booted(packages: Path) -> Iterator[Machine]:
    """A machine for the block, with these packages in /packages."""
    container = run(
        *("docker", "run", "-d", *_RIGHTS, "--network", "none", "--cgroupns", "host", "--hostname", "mail.example.com"),
        *("--tmpfs", "/run", "--tmpfs", "/tmp:exec", "-v", f"{packages}:/packages:ro", _IMAGE),  # noqa: S108 - its own
    ).strip()
    try:
        machine = Machine(container)
        states = {"running", "degraded"}
        seconds = expect(
            "systemd has booted", lambda: machine.run("systemctl", "is-system-running", check=False).strip() in states
        )
        say(f"booted in {seconds:.0f} s")
        yield machine
    finally:
        run("docker", "rm", "-f", "-v", container, check=False)


def built(folder: Path) -> Path:
    """The package, built on the release that it is for."""
    say("building the package …")
    clone = folder / "clone"
    run("git", "clone", "-q", ROOT, clone)
    out = folder / "packages"
    out.mkdir()
    words = "cp -r /clone /build && cd /build && sh scripts/dev/deb.sh /packages"
    volumes = ("-v", f"{clone}:/clone:ro", "-v", f"{out}:/packages")
    run("docker", "run", "--rm", "--network", "host", *volumes, _IMAGE, "sh", "-ec", words)
    return out


def story(machine: Machine) -> str:
    """What has to hold, in order; the last line."""
    machine.shell("dpkg -i /packages/*.deb")
    # run-with-systemd.md and install-the-debian-package.md, with a next hop that is here.
    machine.shell('sudo -u postgres psql -qc "CREATE ROLE pillarbox LOGIN"')
    machine.shell(
        "sudo -u postgres psql -qc \"CREATE DATABASE pillarbox OWNER pillarbox ENCODING 'UTF8' TEMPLATE template0\""
    )
    machine.shell(
        "pillarbox init /etc/pillarbox --hostname mail.example.com --database postgresql:///pillarbox "
        "--var /var/lib/pillarbox --listen 0.0.0.0 --relay 127.0.0.1:2526 --yes || test $? = 69"
    )
    machine.shell("chown -R root:pillarbox /etc/pillarbox && chmod -R g=rX,o= /etc/pillarbox")
    machine.shell("sudo -u pillarbox pillarbox migrate --config /etc/pillarbox")
    machine.shell("sudo -u pillarbox pillarbox principal add root --role admin --role sender --config /etc/pillarbox")
    machine.run(
        *(
            "systemd-run",
            "-q",
            "--unit",
            "sink",
            "/opt/pillarbox/.venv/bin/pillarbox",
            "sink",
            "--log",
            "/srv/sink.jsonl",
        )
    )
    machine.run("systemctl", "enable", "--now", "-q", *_UNITS)
    for unit in _UNITS:
        expect(f"{unit} is active", lambda unit=unit: machine.is_active(unit))  # type: ignore[misc]
        machine.run("systemd-analyze", "security", f"--threshold={_SEVEREST}", "--no-pager", f"{unit}.service")
    machine.submit(1)
    say(f"first mail after {expect('the first message arrives', lambda: not machine.missing()):.1f} s")
    machine.submit(50)
    machine.sendmail()
    expect("what was sent arrives", lambda: not machine.missing())
    say("units are active; SMTP and sendmail deliver")

    for unit in _UNITS:
        machine.killed(unit)
        machine.submit(20)
    expect("what was accepted around the kills arrives", lambda: not machine.missing())
    machine.run("systemctl", "kill", "--kill-whom=main", "-s", "KILL", "postgresql@17-main")
    machine.run("systemctl", "restart", "postgresql@17-main")
    machine.submit(20)
    machine.run("systemctl", "reload", *_UNITS)
    for unit in _UNITS:
        journal = machine.run("journalctl", "-o", "cat", "-u", unit)
        if "daemon.reloaded" not in journal:
            sys.exit(f"{unit} did not reload: {journal[-2000:]}")
    expect("what was accepted around the reload arrives", lambda: not machine.missing())
    say("killed each daemon and PostgreSQL, and reloaded all: nothing is missing")

    machine.run("systemctl", "stop", "pillarbox-smtpd")
    if (result := machine.shown("pillarbox-smtpd", "Result")) != "success":
        sys.exit(f"pillarbox-smtpd stopped with {result}")
    machine.sendmail()
    machine.run("systemctl", "start", "pillarbox-smtpd")
    expect("the timer submits what sendmail kept", lambda: not machine.missing())
    machine.run("systemctl", "stop", *_UNITS)
    for unit in _UNITS:
        if (result := machine.shown(unit, "Result")) != "success":
            sys.exit(f"{unit} stopped with {result}: {machine.run('journalctl', '-n', '20', '-u', unit)}")
    machine.shell("dpkg -r pillarbox")
    machine.shell("test -e /etc/pillarbox/smtpd.yaml && ! test -e /usr/bin/pillarbox")
    twice = len(machine.arrived()) - len(set(machine.arrived()))
    return f"sent={machine.sent} lost={machine.missing()} duplicates={twice}"


def main() -> int:
    """Run the story; the exit status."""
    with docker(), tempfile.TemporaryDirectory() as folder:
        make_bases()
        say("making the machine's image …")
        (Path(folder) / "Dockerfile").write_text(_DOCKERFILE, encoding="ascii")
        run("docker", "build", "-q", "--network", "host", "-t", _IMAGE, folder)
        with booted(built(Path(folder))) as machine:
            print(story(machine))
    return 0


if __name__ == "__main__":
    sys.exit(main())
