"""docker — a Docker daemon for the length of a block, programs that have to end well, and waiting for what should hold

Guarantees: a daemon that runs is used and left alone; otherwise one is started and ended with the block. What fails
    ends the program with its own words.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
#: Where what is made for Docker is kept.
TOOLS: Final = ROOT / ".tools/compose"
#: Of the programs that are run.
ENVIRONMENT: Final = os.environ | {"DOCKER_BUILDKIT": "0"}
_PATIENCE: Final = 600.0  # seconds for each expectation; what is measured is printed


def run(*words: str | Path, check: bool = True, stdin: str = "") -> str:
    """What a program says on standard output; where it fails, all that it said ends this one."""
    done = subprocess.run(words, cwd=ROOT, env=ENVIRONMENT, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def expect(what: str, holds: Callable[[], object]) -> float:
    """Wait until it holds; the seconds that it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > _PATIENCE:
            sys.exit(f"not within {_PATIENCE:.0f} s: {what}")
        time.sleep(0.5)
    return time.monotonic() - began


@contextmanager
def docker() -> Iterator[None]:
    """A daemon: the one that answers, or one of our own for the block."""
    if shutil.which("docker") is None:
        sys.exit("docker is missing (Debian: apt-get install docker.io)")
    if _answers():
        yield
        return
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(["dockerd"], stdout=log, stderr=log, start_new_session=True)
        try:
            expect("dockerd answers", _answers)
            yield
        finally:
            daemon.terminate()
            daemon.wait()


def make_bases() -> None:
    """The base images, of Debian's packages."""
    run("sh", ROOT / "scripts/dev/base_images.sh", TOOLS)


def _answers() -> bool:
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
