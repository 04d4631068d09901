"""compose_up — brings docker-compose.yml up, sends mail through it, kills containers, takes it down and upgrades it

Run by `make compose-test`, as root, on a host with Docker; without a daemon it starts one and ends it afterwards. Where
no image can be pulled, scripts/dev/base_images.sh makes the bases of Debian's packages.
Guarantees: exit status 0 only if every message that smtpd answered with 250 has arrived at the sink at the end, and
    each expectation along the way held; the last line says how much. Whatever was started is ended, volumes included.
Bugs: TLS, DNS and the profiles are not tried. With the bases of Debian, PostgreSQL is 17 without a pull by digest.
"""

from __future__ import annotations

import json
import os
import signal
import smtplib
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from tests.package.docker import ENVIRONMENT, ROOT, TOOLS, docker, expect, make_bases, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PROJECT: Final = "pillarbox-compose-test"
_IMAGE: Final = "pillarbox-compose-test"
ENVIRONMENT.update(PILLARBOX_IMAGE=_IMAGE, COMPOSE_PROJECT_NAME=_PROJECT)


class System:
    """The containers of the file, the mail that they accepted, and the mail that came out of them."""

    def __init__(self, compose: tuple[str | Path, ...]) -> None:
        self._compose = compose
        self.accepted: set[str] = set()
        self.delivered: list[str] = []  # of sinks that are gone
        self._sent = 0

    def compose(self, *words: str, check: bool = True) -> str:
        """A command of Compose over the file."""
        return run(*self._compose, "-f", ROOT / "docker-compose.yml", *words, check=check)

    def container(self, service: str) -> dict[str, Any]:
        """What Docker says of the container of a service."""
        found: dict[str, Any] = json.loads(run("docker", "inspect", self.compose("ps", "-aq", service).strip()))[0]
        return found

    def kill(self, service: str) -> None:
        """SIGKILL for the first process of a container, as the kernel does it; the restart policy has to notice."""
        before = self.container(service)
        os.kill(before["State"]["Pid"], signal.SIGKILL)
        expect(
            f"{service} runs again",
            lambda: self.container(service)["RestartCount"] > before["RestartCount"] and self.is_healthy(service),
        )

    def is_healthy(self, service: str) -> bool:
        """Whether the health check of its container passes."""
        return bool(self.container(service)["State"].get("Health", {}).get("Status") == "healthy")

    def submit(self) -> bool:
        """One message; True after 250."""
        self._sent += 1
        address = f"u{self._sent}@d{self._sent % 7}.example"
        with suppress(OSError, smtplib.SMTPException), smtplib.SMTP("127.0.0.1", 2525, timeout=30) as client:
            client.sendmail("a@a.example", [address], f"Subject: {self._sent}\r\n\r\nx\r\n")
            self.accepted.add(address)
            return True
        return False

    def submit_all(self, count: int) -> None:
        """So many messages, each of which has to be accepted."""
        for _ in range(count):
            expect("smtpd accepts", self.submit)

    def arrived(self) -> list[str]:
        """The recipients that the sinks accepted, in order."""
        container = self.compose("ps", "-aq", "sink", check=False).strip()
        lines = run("docker", "logs", container).splitlines() if container else []
        records = [json.loads(line) for line in lines if line.startswith("{")]
        return self.delivered + [recipient for record in records for recipient in record.get("recipients", [])]

    def missing(self) -> set[str]:
        """What was accepted and has not arrived."""
        return self.accepted - set(self.arrived())


def prepared() -> tuple[str | Path, ...]:
    """Images are there; the words that start Compose."""
    pulled = all(
        subprocess.run(["docker", "pull", "-q", image], capture_output=True, check=False).returncode == 0
        for image in ("python:3.13-slim", "postgres:18")
    )
    if not pulled:
        print("compose-test: no image can be pulled; making the bases of Debian's packages …", flush=True)
        make_bases()
        ENVIRONMENT.update(PYTHON_IMAGE="pillarbox-base:trixie", POSTGRES_IMAGE="pillarbox-postgres:trixie")
    base = ENVIRONMENT.get("PYTHON_IMAGE", "python:3.13-slim")
    print("compose-test: building the image …", flush=True)
    for tag in ("new", "latest"):
        run("docker", "build", "-q", "--network", "host", "--build-arg", f"PYTHON_IMAGE={base}",
            "--label", f"build={tag}", "-t", f"{_IMAGE}:{tag}", ".")  # fmt: skip
    if "version" in run("docker", "compose", "version", check=False):
        return ("docker", "compose")
    return (TOOLS / "docker-compose",)


def story(system: System) -> str:
    """What has to hold, in order; the last line."""
    began = time.monotonic()
    system.compose("up", "-d", "--no-build")
    system.submit_all(1)
    expect("the first message arrives", lambda: not system.missing())
    first = time.monotonic() - began
    print(f"compose-test: first delivered mail {first:.1f} s after `up`", flush=True)
    for service in ("smtpd", "queued-123", "queued-456", "httpd"):
        expect(f"{service} is healthy", lambda service=service: system.is_healthy(service))  # type: ignore[misc]
    system.submit_all(20)
    expect("20 messages arrive", lambda: not system.missing())

    for service in ("queued-123", "smtpd"):
        system.kill(service)
    with sending(system):
        os.kill(system.container("postgres")["State"]["Pid"], signal.SIGKILL)
        count = len(system.accepted)
        expect("smtpd accepts again", lambda: len(system.accepted) > count + 10)
    expect("what was accepted around the kills arrives", lambda: not system.missing())
    print(
        f"compose-test: killed queued-123, smtpd and postgres: {len(system.accepted)} accepted, none lost", flush=True
    )

    system.delivered = system.arrived()
    system.compose("rm", "-sf", "sink")
    system.submit_all(20)
    waiting = len(system.missing())
    system.compose("down")
    system.compose("up", "-d", "--no-build")
    expect("what waited through `down` and `up` arrives", lambda: not system.missing())
    print(f"compose-test: {waiting} messages waited through `down` and `up`; all arrived", flush=True)

    ENVIRONMENT["PILLARBOX_IMAGE"] = f"{_IMAGE}:new"
    old = {service: system.container(service)["Image"] for service in ("smtpd", "queued-123", "queued-456", "httpd")}
    with sending(system):
        system.compose("run", "--rm", "migrate", "pillarbox", "migrate", "--phase", "pre", "--config", "/etc/pillarbox")
        for service, image in old.items():
            system.compose("up", "-d", "--no-build", "--no-deps", service)
            expect(f"the new {service} is healthy", lambda service=service: system.is_healthy(service))  # type: ignore[misc]
            if system.container(service)["Image"] == image:
                sys.exit(f"compose-test: {service} still runs the old image")
    expect("what was accepted during the upgrade arrives", lambda: not system.missing())
    twice = len(system.arrived()) - len(set(system.arrived()))
    return f"accepted={len(system.accepted)} lost={len(system.missing())} duplicates={twice} first_seconds={first:.1f}"


@contextmanager
def sending(system: System) -> Iterator[None]:
    """Messages go in, one after another, while the block runs; refusals are allowed."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.1):
            system.submit()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def main() -> int:
    """Run the story; the exit status."""
    with docker():
        system = System(prepared())
        try:
            print(story(system))
        finally:
            system.compose("down", "-v", check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
