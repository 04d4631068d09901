"""test_wheel — what is built installs into an empty environment and works there, far from any checkout

Owns: proofs about pyproject.toml: what the source distribution and the wheel made of it carry, and what they leave out.
Needs: a package index, for pip; every Python from 3.12 to 3.14 that is on PATH, or that uv finds or can download, is
    tried, the tests' own always. pipx and uv come from the index into an environment of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
_DATA: Final = "pillarbox-0.1.0.data/data/share/pillarbox"
#: What `pillarbox init`, the how-to pages and the commands take from an installation.
CARRIED: Final = (
    *(f"{_DATA}/config/{daemon}.yaml" for daemon in ("smtpd", "queued", "httpd", "collect")),
    *(f"{_DATA}/config/{daemon}.schema.json" for daemon in ("smtpd", "queued", "httpd", "collect")),
    f"{_DATA}/deploy/pillarbox-smtpd.service",
    f"{_DATA}/deploy/pillarbox-queued@.service",
    f"{_DATA}/deploy/pillarbox-httpd.service",
    f"{_DATA}/deploy/pillarbox-collect.service",
    f"{_DATA}/deploy/prometheus-alerts.yml",
    "sql/schema/03_queue.sql",
    "collect/templates/en/activation.html",
    "httpd/console/templates/review/mail.html",
    "pillarbox-0.1.0.dist-info/licenses/LICENSE",
)
_PYTHONS: Final = ("python3.12", "python3.13", "python3.14")


def pythons() -> list[str]:
    """The interpreters to install for: one of each version, the tests' own first."""
    own = f"python3.{sys.version_info.minor}"
    others = {name: shutil.which(name) for name in _PYTHONS if name != own}
    works = [path for path in others.values() if path and not subprocess.run([path, "-c", ""], check=False).returncode]
    return [sys.executable, *works]


def run(*words: str | Path, folder: Path, **variables: str | Path) -> str:
    """What a program says that has to end well; nothing of this checkout is in its environment."""
    passed = ("PATH", "HOME", "PIP_", "UV_", "SSL_", "REQUESTS_")
    environment = {name: value for name, value in os.environ.items() if name.startswith(passed)}
    environment |= {name: str(value) for name, value in variables.items()}
    done = subprocess.run(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made from the source distribution alone, which is made from what git knows."""
    folder = tmp_path_factory.mktemp("package")
    run("git", "clone", "-q", ROOT, folder / "clone", folder=folder)
    venv.create(folder / "tools", with_pip=True)
    run(folder / "tools/bin/pip", "install", "-q", "build", folder=folder)
    run(folder / "tools/bin/python", "-m", "build", "-o", folder, folder / "clone", folder=folder)
    assert len(list(folder.glob("*.tar.gz"))) == 1
    [made] = folder.glob("*.whl")
    return made


def test_the_wheel_carries_what_an_installation_needs_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert [name for name in CARRIED if name not in names] == []
    ours = ("scripts/bench", "scripts/dev", "tests/", "clients/", "docs/", "conftest")
    assert [name for name in names if name.startswith(ours)] == []
    assert {name.split("/")[0] for name in names if "pillarbox-0.1.0" not in name} == {
        *("collect", "httpd", "operate", "queued", "scripts", "shared", "smtpd", "sql")
    }


@pytest.mark.slow
@pytest.mark.parametrize("python", pythons(), ids=lambda path: Path(path).name)
def test_it_installs_into_an_empty_environment_and_delivers(python: str, wheel: Path, tmp_path: Path) -> None:
    run(python, "-m", "venv", tmp_path / "venv", folder=tmp_path)
    run(tmp_path / "venv/bin/pip", "install", "-q", "-c", ROOT / "constraints.txt", f"{wheel}[web]", folder=tmp_path)
    pillarbox = tmp_path / "venv/bin/pillarbox"
    assert run(pillarbox, "--version", folder=tmp_path) == "pillarbox 0.1.0\n"
    assert "lost=0 duplicated=0 altered=0" in run(pillarbox, "demo", folder=tmp_path)
    made = run(pillarbox, "init", "etc", "--hostname", "mail.example.com", "--direct", folder=tmp_path)
    assert "has the roles admin and sender" in made
    listed = run(pillarbox, "principal", "list", "--config", "etc", "--json", folder=tmp_path)
    assert '"roles": ["admin", "sender"]' in listed
    run(pillarbox, "database", "stop", "--config", "etc", folder=tmp_path)


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of pipx, uv and uvx."""
    folder = tmp_path_factory.mktemp("runners")
    venv.create(folder / "venv", with_pip=True)
    pip = folder / "venv/bin/pip"
    if subprocess.run([pip, "install", "-q", "pipx", "uv"], capture_output=True, check=False).returncode:
        pytest.skip("pip cannot install pipx and uv here")
    return folder / "venv/bin"


@pytest.mark.slow
def test_pipx_runs_the_demo(runners: Path, wheel: Path, tmp_path: Path) -> None:
    words = ("run", "--python", sys.executable, "--spec", wheel, "pillarbox", "demo")
    places = {name: tmp_path / name for name in ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR")}
    said = run(runners / "pipx", *words, folder=tmp_path, PIP_CONSTRAINT=ROOT / "constraints.txt", **places)
    assert "lost=0 duplicated=0 altered=0" in said


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_uvx_runs_the_demo(version: str, runners: Path, wheel: Path, tmp_path: Path) -> None:
    uv, own = runners / "uv", f"3.{sys.version_info.minor}" == version
    python = sys.executable if own else version
    if not own:
        for words in (("find", version), ("install", version), ("find", version)):
            done = subprocess.run([uv, "python", *words], capture_output=True, text=True, check=False)
            if words[0] == "find" and not done.returncode:
                python = done.stdout.strip()
                break
        else:
            pytest.skip(f"uv neither finds nor downloads Python {version}")
    demo = ("--python", python, "--from", wheel, "pillarbox", "demo")
    said = run(runners / "uvx", *demo, folder=tmp_path, UV_CONSTRAINT=ROOT / "constraints.txt", UV_NATIVE_TLS="1")
    assert "lost=0 duplicated=0 altered=0" in said
