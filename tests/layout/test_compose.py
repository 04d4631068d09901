"""test-compose — docker-compose.yml starts existing programs with valid configurations

Guarantees: every command names a module or command of ours, every configuration written there loads, and each worker
    of that configuration has exactly one service.
Bugs: Docker itself is not asked; `make compose-test` brings the system up.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
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
FOLDER: Final = ROOT / "deploy/compose"
CONFIGURED: Final = FOLDER / "config"
OBSERVE: Final = FOLDER / "observe"
VARIABLES: Final = {"POSTGRES_PASSWORD": "secret"}
#: Services from our own image.
OURS: Final = {
    name: service
    for name, service in COMPOSE["services"].items()
    if service.get("build", {}).get("context") == "." and "command" in service
}


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


def test_smtpd_accepts_its_configuration_and_listens_where_the_port_is_published() -> None:
    config = load_smtpd(CONFIGURED / "smtpd.yaml", VARIABLES)
    assert config.environment.database.uri == "postgresql://pillarbox:secret@postgres:5432/pillarbox"
    (listener,) = config.servers[0].listeners
    (published,) = OURS["smtpd"]["ports"]
    assert published.endswith(f":{listener.port}")
    assert listener.address == "0.0.0.0"  # noqa: S104 - inside its container


def test_httpd_accepts_its_configuration_and_listens_where_the_port_is_published() -> None:
    config = load_httpd(CONFIGURED / "httpd.yaml", VARIABLES)
    (published,) = OURS["httpd"]["ports"]
    assert published == "127.0.0.1:8025:8025"
    assert str(config.listen) == "0.0.0.0:8025"
    assert (CONFIGURED / config.mail.smtpd).exists()
    rules = load_smtpd(CONFIGURED / "smtpd.yaml", VARIABLES)
    patience = config.shutdown.timeout + rules.spool.timeout
    assert int(OURS["httpd"]["stop_grace_period"].removesuffix("s")) > patience.total_seconds()


def test_the_collector_has_all_it_needs_but_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_collect(CONFIGURED / "collect.yaml", VARIABLES)
    (key,) = config.keys
    assert OURS["collect"]["environment"][f"{key.environment}_FILE"] == "/run/secrets/accounts-key"
    assert "accounts-key" in OURS["collect"]["secrets"]
    (tmp_path / "accounts-key").write_text("00" * 32 + "\n", encoding="ascii")
    monkeypatch.setenv(f"{key.environment}_FILE", str(tmp_path / "accounts-key"))
    prepared(config)
    install = OURS["accounts"]["command"]
    assert install[install.index("--schema") + 1] == config.accounts.schema_
    assert OURS["accounts"]["profiles"] == OURS["collect"]["profiles"]


def test_analytics_yield_their_processors_to_mail() -> None:
    shares = {name: service.get("cpu_shares", 1024) for name, service in OURS.items()}
    assert {name for name, share in shares.items() if share < 1024} == {
        name for name, service in OURS.items() if service.get("profiles") == ["analytics"]
    }


def _listening() -> dict[str, int]:
    """The port at which each daemon answers for its health and metrics, by service."""
    queued = load_queued(CONFIGURED / "queued.yaml", VARIABLES)
    listening = {
        "smtpd": load_smtpd(CONFIGURED / "smtpd.yaml", VARIABLES).metrics.listen,
        "httpd": load_httpd(CONFIGURED / "httpd.yaml", VARIABLES).metrics.listen,
        "collect": load_collect(CONFIGURED / "collect.yaml", VARIABLES).metrics.listen,
    }
    ports = {name: listen.port for name, listen in listening.items() if listen is not None}
    assert queued.metrics.listen is not None
    return ports | {worker.id: queued.metrics.listen.port + place for place, worker in enumerate(queued.workers)}


def test_each_daemon_is_asked_for_its_health_where_it_answers() -> None:
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (usual,) = re.findall(r"^ENV PILLARBOX_HEALTHY=(\S+)$", image, re.MULTILINE)
    assert "urlopen(os.environ['PILLARBOX_HEALTHY']" in image
    checked = {name: service for name, service in OURS.items() if service["healthcheck"] != {"disable": True}}
    assert {name: service["environment"].get("PILLARBOX_HEALTHY", usual) for name, service in checked.items()} == {
        name: f"http://127.0.0.1:{port}/healthy" for name, port in _listening().items()
    }


def test_prometheus_asks_every_daemon_that_has_no_profile() -> None:
    scraped = yaml.safe_load((OBSERVE / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = scraped["scrape_configs"]
    (static,) = job["static_configs"]
    assert set(static["targets"]) == {
        f"{name}:{port}" for name, port in _listening().items() if "profiles" not in OURS[name]
    }
    mounted = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["prometheus"]["volumes"])
    alerts = yaml.safe_load((ROOT / "deploy/prometheus-alerts.yml").read_text(encoding="utf-8"))
    assert mounted["./deploy/prometheus-alerts.yml"] in scraped["rule_files"]
    assert f'{{job="{job["job_name"]}"}}' in alerts["groups"][0]["rules"][0]["expr"]


def test_grafana_is_given_the_prometheus_and_the_dashboard_of_this_file() -> None:
    grafana = COMPOSE["services"]["grafana"]
    mounted = dict(volume.split(":")[:2] for volume in grafana["volumes"])
    (source,) = yaml.safe_load((OBSERVE / "datasource.yml").read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((OBSERVE / "dashboards.yml").read_text(encoding="utf-8"))["providers"]
    dashboard = PurePath(mounted["./deploy/grafana-dashboard.json"])
    assert dashboard.parent == PurePath(provider["options"]["path"])
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == str(dashboard)


def test_what_is_mounted_exists() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (ROOT / volume.split(":")[0]).exists(), volume


def test_no_container_of_ours_has_rights_or_writes_its_root_folder() -> None:
    for name, service in OURS.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
    for service in COMPOSE["services"].values():
        assert "mem_limit" in service
        for variable in service.get("environment", {}):
            assert not variable.endswith(("PASSWORD", "KEY", "SECRET", "URI")), variable


def test_the_page_names_what_there_is() -> None:
    page = (ROOT / "docs/how-to/start/run-in-containers.md").read_text(encoding="utf-8")
    profiles = {profile for service in COMPOSE["services"].values() for profile in service.get("profiles", ())}
    assert set(re.findall(r"--profile (\w+)", page)) <= profiles
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == profiles
    services = re.findall(r"docker compose (?:exec|logs|run --rm|kill --signal HUP) ([\w-]+)", page)
    assert services
    assert set(services) <= COMPOSE["services"].keys()
    for service in re.findall(r"for service in ([^;]+);", page)[0].split():
        assert "restart" in OURS[service]
    for name, secret in COMPOSE["secrets"].items():
        variable, default = re.fullmatch(r"\$\{(\w+):-\./(\S+)\}", secret["file"]).groups()  # type: ignore[union-attr]
        assert f"| `{name}` | `{variable}`, by default `{default}`" in page


def test_each_configured_worker_has_one_service() -> None:
    config = load_queued(CONFIGURED / "queued.yaml", VARIABLES)
    started = [service["command"][-1] for service in OURS.values() if "--worker" in service["command"]]
    assert sorted(started) == sorted(worker.id for worker in config.workers)


def test_the_workers_deliver_to_the_sink_or_a_smart_host() -> None:
    command = OURS["sink"]["command"]
    (transport,) = load_queued(CONFIGURED / "queued.yaml", VARIABLES).transports
    assert transport.connection.server == "sink"
    assert str(transport.connection.port) == command[command.index("--port") + 1]
    other = VARIABLES | {"SMART_HOST": "smtp.example.net", "SMART_PORT": "587"}
    (transport,) = load_queued(CONFIGURED / "queued.yaml", other).transports
    assert (transport.connection.server, transport.connection.port) == ("smtp.example.net", 587)
    for worker in ("queued-123", "queued-456"):
        assert OURS[worker]["environment"].items() >= {
            "SMART_HOST": "${SMART_HOST:-sink}", "SMART_PORT": "${SMART_PORT:-2526}"
        }.items()  # fmt: skip


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
        assert f"lake:{export.lake}" in OURS[name]["volumes"]
        assert "/tmp:exec,mode=1777" in OURS[name]["tmpfs"], "Spark unpacks and loads a library there"  # noqa: S108 - of a container
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
