"""compose_up — brings docker-compose.yml up with its profiles, sends mail, kills containers, upgrades them

Run by `make compose-test`, as root, on a host with Docker; without a daemon it starts one and ends it afterwards. Where
no image can be pulled, scripts/dev/base_images.sh makes the bases of Debian's packages.
Guarantees: exit status 0 only if every message that smtpd answered with 250 has arrived at the sink at the end, and
    each expectation along the way held; the last line says how much. Whatever was started is ended, volumes included.
Bugs: TLS and DNS are not tried. Grafana is only started where its image can be pulled. With the bases of Debian,
    PostgreSQL is 17, without a pull by digest.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import signal
import smtplib
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from tests.package.docker import ENVIRONMENT, ROOT, TOOLS, docker, expect, make_bases, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PROJECT: Final = "pillarbox-compose-test"
_IMAGE: Final = "pillarbox-compose-test"
_SECRETS: Final = {"postgres-password": "POSTGRES_PASSWORD_FILE", "accounts-key": "ACCOUNTS_KEY_FILE"}
_DAEMONS: Final = ("smtpd", "queued-123", "queued-456", "httpd")
ENVIRONMENT.update(
    {variable: str(TOOLS / "secrets" / name) for name, variable in _SECRETS.items()},
    COMPOSE_PROJECT_NAME=_PROJECT,
    COMPOSE_PROFILES="sink",
    PILLARBOX_IMAGE=_IMAGE,
    PILLARBOX_POSTGRES_IMAGE=f"{_IMAGE}-postgres",
    PILLARBOX_ANALYTICS_IMAGE=f"{_IMAGE}-analytics",
)


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

    def psql(self, statement: str) -> str:
        """What PostgreSQL answers to its administrator."""
        words = ("psql", "-qAtX", "-h", "127.0.0.1", "-U", "pillarbox", "-d", "pillarbox", "-c", statement)
        secret = "PGPASSWORD=$(cat /run/secrets/postgres-password)"  # noqa: S105 - where it is
        return self.compose(
            "exec", "-T", "postgres", "sh", "-c", f'{secret} exec "$@"', "sh", *words, check=False
        ).strip()

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
    if not all(map(_pulled, ("python:3.13-slim", "postgres:18"))):
        print("compose-test: no image can be pulled; making the bases of Debian's packages …", flush=True)
        make_bases()
        ENVIRONMENT.update(
            PYTHON_IMAGE="pillarbox-base:trixie",
            POSTGRES_IMAGE="pillarbox-postgres:trixie",
            PROMETHEUS_IMAGE="pillarbox-prometheus:trixie",
        )
    base = f"PYTHON_IMAGE={ENVIRONMENT.get('PYTHON_IMAGE', 'python:3.13-slim')}"
    print("compose-test: building the images …", flush=True)
    for tag in ("new", "latest"):
        _build(f"{_IMAGE}:{tag}", ".", base, "--label", f"build={tag}")
    analytics = ("--build-arg", "REQUIREMENTS=analytics", "--build-arg", "PACKAGES=default-jre-headless")
    _build(ENVIRONMENT["PILLARBOX_ANALYTICS_IMAGE"], ".", base, *analytics)
    server = f"POSTGRES_IMAGE={ENVIRONMENT.get('POSTGRES_IMAGE', 'postgres:18')}"
    folder = "deploy/compose"
    _build(ENVIRONMENT["PILLARBOX_POSTGRES_IMAGE"], folder, server, "-f", f"{folder}/postgres.Dockerfile")
    _make_secrets()
    if "version" in run("docker", "compose", "version", check=False):
        return ("docker", "compose")
    return (TOOLS / "docker-compose",)


def _pulled(image: str) -> bool:
    return subprocess.run(["docker", "pull", "-q", image], capture_output=True, check=False).returncode == 0


def _build(image: str, context: str, argument: str, *words: str) -> None:
    run("docker", "build", "-q", "--network", "host", "--build-arg", argument, *words, "-t", image, context)


def _make_secrets() -> None:
    """Secrets of this run in files of one line; the folder is ours alone, the files are read in containers."""
    folder = TOOLS / "secrets"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _SECRETS:
        (folder / name).write_text(f"{secrets.token_hex(32)}\n", encoding="ascii")


def story(system: System) -> str:
    """What has to hold, in order; the last line."""
    began = time.monotonic()
    system.compose("up", "-d", "--no-build")
    system.submit_all(1)
    expect("the first message arrives", lambda: not system.missing())
    first = time.monotonic() - began
    print(f"compose-test: first delivered mail {first:.1f} s after `up`", flush=True)
    for service in _DAEMONS:
        expect(f"{service} is healthy", lambda service=service: system.is_healthy(service))  # type: ignore[misc]
        _confined(system, service)
    system.submit_all(20)
    expect("20 messages arrive", lambda: not system.missing())
    _commanded(system)
    _maintained(system)
    _observed(system)
    _account_mail(system)
    _reported(system)

    for service in ("queued-123", "smtpd"):
        system.kill(service)
    names = ("exec", "-T", "queued-123", "sh", "-c", "cat var/workers/queued-123@*")
    expect("the worker that was killed knows its predecessor", lambda: system.compose(*names).count("\n") == 2)
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
    system.compose("--profile", "*", "down")
    system.compose("up", "-d", "--no-build")
    expect("what waited through `down` and `up` arrives", lambda: not system.missing())
    print(f"compose-test: {waiting} messages waited through `down` and `up`; all arrived", flush=True)

    ENVIRONMENT["PILLARBOX_IMAGE"] = f"{_IMAGE}:new"
    old = {service: system.container(service)["Image"] for service in _DAEMONS}
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


def _confined(system: System, service: str) -> None:
    """A daemon's container has no rights, cannot write its root folder, and no secret among its variables."""
    container = system.container(service)
    host, variables = container["HostConfig"], " ".join(container["Config"]["Env"])
    passwords = [(TOOLS / "secrets" / name).read_text(encoding="ascii").strip() for name in _SECRETS]
    if (
        not host["ReadonlyRootfs"]
        or host["CapDrop"] != ["ALL"]
        or host["Memory"] <= 0
        or container["Config"]["User"] in {"", "0", "root"}
        or any(password in variables for password in passwords)
    ):
        sys.exit(f"compose-test: {service} may do more than it should: {host} {container['Config']}")


def _commanded(system: System) -> None:
    """The commands that the page runs in containers work."""
    page = (ROOT / "docs/how-to/start/run-in-containers.md").read_text(encoding="utf-8")
    commands = re.findall(r"^docker compose exec (.+)$", page, re.MULTILINE)
    for command in commands:
        system.compose("exec", "-T", *shlex.split(command))
    print(f"compose-test: {len(commands)} commands of the page work in a container", flush=True)


def _maintained(system: System) -> None:
    """pg_cron has run jobs of ours, and none failed."""
    done = "FROM cron.job_run_details WHERE status = "
    expect("pg_cron runs a job", lambda: system.psql(f"SELECT count(*) > 0 {done} 'succeeded'") == "t")
    failed = system.psql(f"SELECT return_message {done} 'failed'")
    if failed:
        sys.exit(f"compose-test: pg_cron: {failed}")
    jobs = system.psql("SELECT count(*) FROM cron.job")
    print(f"compose-test: pg_cron has {jobs} jobs, and runs them", flush=True)


def _observed(system: System) -> None:
    """Profile observe: Prometheus reaches every daemon and evaluates the alerts; Grafana has the dashboard."""
    system.compose("up", "-d", "--no-build", "--no-deps", "prometheus")

    def asked(path: str) -> Any:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:9090/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]
        return {}

    def up() -> bool:
        targets = asked("targets").get("activeTargets", [])
        return len(targets) == len(_DAEMONS) and all(target["health"] == "up" for target in targets)

    expect("Prometheus reaches every daemon", up)
    rules = [rule for group in asked("rules")["groups"] for rule in group["rules"]]
    broken = [rule["name"] for rule in rules if rule["health"] == "err"]
    if broken or not rules:
        sys.exit(f"compose-test: alerts that Prometheus cannot evaluate: {broken or 'there are none'}")
    print(f"compose-test: Prometheus reaches {len(_DAEMONS)} daemons and has {len(rules)} alerts", flush=True)
    file = json.loads(system.compose("--profile", "observe", "config", "--format", "json"))
    if not _pulled(file["services"]["grafana"]["image"]):
        print("compose-test: Grafana's image cannot be pulled; Grafana was not started", flush=True)
        return
    system.compose("up", "-d", "--no-build", "--no-deps", "grafana")

    def shown() -> bool:
        with (
            suppress(OSError),
            urllib.request.urlopen("http://127.0.0.1:3000/api/dashboards/uid/pillarbox", timeout=10),
        ):
            return True
        return False

    expect("Grafana has the dashboard", shown)


def _account_mail(system: System) -> None:
    """Profile accounts: who signs up gets mail, which is signed with the key in the file."""
    system.compose("up", "-d", "--no-build", "collect")
    expect("the collector is healthy", lambda: system.is_healthy("collect"))
    system.psql("INSERT INTO accounts.accounts (email, login) VALUES ('new@d1.example', 'newcomer')")
    expect("who signs up gets mail", lambda: "new@d1.example" in system.arrived())
    print("compose-test: an account was made, and its mail arrived", flush=True)


def _reported(system: System) -> None:
    """Profile analytics: an export of made history, a cluster of Spark, and the report that it makes."""

    def once(*words: str) -> None:
        system.compose("--profile", "analytics", "run", "--rm", "-T", *words)

    history = ("generate", "--attempts", "3000", "--days", "2", "--yes", "--config", "/etc/pillarbox")
    once("export", "pillarbox", "analytics", *history)
    system.compose("--profile", "analytics", "up", "-d", "--no-build", "spark-master", "spark-worker")
    once("report")
    counted = "SELECT sum((hour->>'attempts')::int) FROM pillarbox.reports, jsonb_array_elements(rows) AS hour"
    reported = system.psql(f"{counted} WHERE section = 'volume'")
    happened = system.psql("SELECT count(*) FROM pillarbox.attempts WHERE ts < date_trunc('day', now(), 'UTC')")
    if reported != happened:
        sys.exit(f"compose-test: the report counts {reported} attempts, and PostgreSQL {happened}")
    once("export", "test", "-s", "/var/lib/pillarbox/lake/report.html")
    system.compose("--profile", "analytics", "rm", "-sf", "spark-master", "spark-worker", "export", "report")
    print(f"compose-test: history was exported, and a cluster of Spark counted its {happened} attempts", flush=True)


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
            system.compose("--profile", "*", "down", "-v", check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
