"""test-compose — docker-compose.yml starts existing programs with valid configurations

Guarantees: every command names a module or command of ours, every configuration written there loads, and each worker
    of that configuration has exactly one service.
Bugs: Docker itself is not asked; `make compose-test` brings the system up.
"""

from __future__ import annotations

import argparse
import importlib.util
import tomllib
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from collect.daemon import prepared
from scripts.analytics import command
from shared.config.collect.load import load_collect
from shared.config.httpd.load import load_httpd
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from tests.layout.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

COMPOSE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
OURS: Final = {name: service for name, service in COMPOSE["services"].items() if "build" in service}


@pytest.fixture
def configurations(tmp_path: Path) -> Path:
    """The folder of YAML files the containers see."""
    for name, config in COMPOSE["configs"].items():
        (tmp_path / f"{name}.yaml").write_text(config["content"].replace("$$", "$"), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", OURS)
def test_every_command_exists(name: str) -> None:
    program, *arguments = OURS[name]["command"]
    if program == "python3":
        assert arguments[0] == "-m"
        assert importlib.util.find_spec(arguments[1]) is not None
    elif program == "spark-class":  # of the wheel of pyspark
        assert OURS[name]["build"]["args"]["REQUIREMENTS"] == "analytics"
        assert arguments[0].startswith("org.apache.spark.deploy.")
    else:
        pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        assert program in pyproject["project"]["scripts"]


def test_smtpd_accepts_its_configuration_and_listens_where_the_port_is_published(configurations: Path) -> None:
    uri = "postgresql://postgres/pillarbox"
    config = load_smtpd(configurations / "smtpd.yaml", {"PILLARBOX_DATABASE_URI": uri})
    assert config.environment.database.uri == uri
    (listener,) = config.servers[0].listeners
    (published,) = OURS["smtpd"]["ports"]
    assert published.endswith(f":{listener.port}")
    assert listener.address == "0.0.0.0"  # noqa: S104 - inside its container


def test_httpd_accepts_its_configuration_and_listens_where_the_port_is_published(configurations: Path) -> None:
    config = load_httpd(configurations / "httpd.yaml", {"PILLARBOX_DATABASE_URI": "postgresql://postgres/pillarbox"})
    (published,) = OURS["httpd"]["ports"]
    assert published == "127.0.0.1:8025:8025"
    assert str(config.listen) == "0.0.0.0:8025"
    assert (configurations / config.mail.smtpd).exists()
    rules = load_smtpd(configurations / "smtpd.yaml", {"PILLARBOX_DATABASE_URI": config.environment.database.uri})
    patience = config.shutdown.timeout + rules.spool.timeout
    assert int(OURS["httpd"]["stop_grace_period"].removesuffix("s")) > patience.total_seconds()


def test_the_collector_has_all_it_needs_but_the_key(configurations: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_collect(
        configurations / "collect.yaml", {"PILLARBOX_DATABASE_URI": "postgresql://postgres/pillarbox"}
    )
    assert "ACCOUNTS_KEY" in OURS["collect"]["environment"]
    monkeypatch.setenv("ACCOUNTS_KEY", "00" * 32)
    prepared(config)
    install = OURS["accounts"]["command"]
    assert install[install.index("--schema") + 1] == config.accounts.schema_
    assert OURS["accounts"]["profiles"] == OURS["collect"]["profiles"]


def test_each_daemon_is_asked_for_its_health_where_it_answers(configurations: Path) -> None:
    variables = {"PILLARBOX_DATABASE_URI": "postgresql://postgres/pillarbox"}
    queued = load_queued(configurations / "queued.yaml", variables)
    listening = {
        "smtpd": load_smtpd(configurations / "smtpd.yaml", variables).metrics.listen,
        "httpd": load_httpd(configurations / "httpd.yaml", variables).metrics.listen,
        "collect": load_collect(configurations / "collect.yaml", variables).metrics.listen,
    }
    ports = {name: listen.port for name, listen in listening.items() if listen is not None}
    assert queued.metrics.listen is not None
    ports |= {worker.id: queued.metrics.listen.port + place for place, worker in enumerate(queued.workers)}
    asked = {name: service["healthcheck"]["test"][-1] for name, service in OURS.items() if "healthcheck" in service}
    assert asked.keys() == ports.keys()
    for name, port in ports.items():
        assert f"'http://127.0.0.1:{port}/healthy'" in asked[name]


def test_each_configured_worker_has_one_service(configurations: Path) -> None:
    config = load_queued(configurations / "queued.yaml", {"PILLARBOX_DATABASE_URI": "postgresql://postgres/pillarbox"})
    started = [service["command"][-1] for service in OURS.values() if "--worker" in service["command"]]
    assert sorted(started) == sorted(worker.id for worker in config.workers)


def test_the_workers_deliver_to_the_sink(configurations: Path) -> None:
    config = load_queued(configurations / "queued.yaml", {"PILLARBOX_DATABASE_URI": "postgresql://postgres/pillarbox"})
    (transport,) = config.transports
    command = OURS["sink"]["command"]
    assert transport.connection.server == "sink"
    assert str(transport.connection.port) == command[command.index("--port") + 1]


def test_the_report_is_made_by_the_cluster_from_the_lake_that_all_of_it_reads() -> None:
    def asked(name: str) -> argparse.Namespace:
        parser = argparse.ArgumentParser()
        command.add_parser(parser.add_subparsers())
        return parser.parse_args(OURS[name]["command"][1:])

    export, report = asked("export"), asked("report")
    assert report.lake == export.lake
    assert report.html.parent == PurePath(report.lake)
    cluster = {name for name, service in OURS.items() if service.get("profiles") == ["analytics"]}
    assert cluster == {"spark-master", "spark-worker", "export", "report"}
    for name in cluster:
        assert OURS[name]["volumes"] == [f"lake:{export.lake}"]
        assert OURS[name]["image"] != OURS["smtpd"]["image"]
    master = OURS["spark-master"]["command"]
    where = f"spark://{master[master.index('--host') + 1]}:{master[master.index('--port') + 1]}"
    assert where == report.master == OURS["spark-worker"]["command"][-1] == "spark://spark-master:7077"
    assert {"export", "spark-worker"} == set(OURS["report"]["depends_on"])


def test_what_the_image_copies_is_sent_to_the_builder() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
    copied = [
        name
        for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    ]
    assert "smtpd" in copied
    assert {name.split("/")[0] for name in copied} <= sent
