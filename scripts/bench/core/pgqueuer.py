"""pgqueuer — runs PgQueuer's own benchmark on the same server

Owns: a scratch environment with PgQueuer from the package index, its benchmark from its source archive, and a drain by
    a given number of processes.
Guarantees: Pillarbox neither installs nor keeps any of it. Without a package index PgQueuer is unmeasured, with a note.
    Each process counts the jobs it did.
See: PgQueuer, tools/benchmark.py, strategy drain: consumers in one process drain a preloaded queue of jobs with an
    empty payload; each job leaves a row in its log. scripts/bench/core/pgqueuer_worker.py runs it in several processes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from scripts.bench.core.server import settle_down
from scripts.bench.core.settle import drained

if TYPE_CHECKING:
    from scripts.bench.core.server import Server

_WORKER: Final = Path(__file__).with_name("pgqueuer_worker.py")
_NEEDS = ("pgqueuer[asyncpg]", "tqdm", "tabulate", "typer", "uvloop")


@dataclass(frozen=True, slots=True)
class PgQueuer:
    """An environment that can run PgQueuer's benchmark."""

    python: Path
    benchmark: Path
    version: str


class CannotMeasureError(Exception):
    """A peer cannot be measured; the text says why."""


async def prepare(folder: Path) -> PgQueuer:
    """Make the environment; CannotMeasureError if the index is unreachable or its package is unusable."""
    python = folder / "bin" / "python"
    await _run(sys.executable, "-m", "venv", str(folder))
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--quiet")
    await _run(*pip, "install", *_NEEDS)
    version = (await _run(str(python), "-c", "import importlib.metadata as m; print(m.version('pgqueuer'))")).strip()
    archives = folder / "archive"
    source = ("--no-deps", "--no-binary", ":all:", "--dest", str(archives), f"pgqueuer=={version}")
    await _run(*pip, "download", *source)
    for archive in archives.glob("*.tar.gz"):
        with tarfile.open(archive) as opened:
            opened.extractall(archives, filter="data")
    found = next(archives.glob("*/tools/benchmark.py"), None)
    if found is None:
        raise CannotMeasureError(f"PgQueuer {version}: its source archive has no tools/benchmark.py")
    return PgQueuer(python, found, version)


async def drain(server: Server, peer: PgQueuer, jobs: int, batch: int, consumers: int, processes: int) -> float:
    """Jobs per second of PgQueuer's strategy `drain`, with `consumers` in each of `processes`."""
    command = (str(peer.python), "-P", str(_WORKER), str(peer.benchmark), str(jobs), str(batch), str(consumers))
    async with server.cell(empty=True) as uri:
        environment = {**os.environ, **_libpq(uri)}
        await _run(str(peer.python.with_name("pgq")), "install", environment=environment)
        await _run(*command, "fill", environment=environment)
        async with server.session(uri) as connection:
            await settle_down(connection)
        return jobs / await drained([(*command, "drain")] * processes, jobs, "PgQueuer", environment)


def _libpq(uri: str) -> dict[str, str]:
    """The URI as libpq's environment variables, which PgQueuer's benchmark reads."""
    parts = urlsplit(uri)
    given = {name: values[0] for name, values in parse_qs(parts.query).items()}
    named = {"PGHOST": given["host"], "PGPORT": given["port"], "PGUSER": given["user"]}
    return {**named, "PGDATABASE": parts.path.removeprefix("/")}


async def _run(*command: str, environment: dict[str, str] | None = None) -> str:
    """The command's output; CannotMeasureError with its last line when it fails."""
    pipe = asyncio.subprocess.PIPE
    try:
        running = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment)
    except OSError as error:
        raise CannotMeasureError(f"{command[0]}: {error.strerror}") from error
    said, complaints = await running.communicate()
    if running.returncode:
        lines = (complaints or said).decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), f"exit status {running.returncode}")
        raise CannotMeasureError(f"{Path(command[0]).name} {' '.join(command[1:4])}: {last}")
    return said.decode()
