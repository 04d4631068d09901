"""test-cluster — a cluster of Spark that loses a worker, and Spark Connect, give the same report as local mode

Guarantees: a standalone master, two workers and a server of Spark Connect are processes of their own, which listen on
    loopback only. The worker is killed when some tables are counted and others are not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pyspark
import pytest

from scripts.analytics import session
from scripts.analytics.report import command
from scripts.analytics.report.text import as_document
from tests.fixtures.analytics.lake import DAYS
from tests.fixtures.peers.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_SPARK: Final = Path(pyspark.__file__).parent
_PATIENCE: Final = 240.0
_SETTINGS: Final = """
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.driver.memory 768m
spark.executor.memory 512m
spark.executor.cores 1
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.sql.adaptive.enabled false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.sql.codegen.wholeStage false
spark.sql.shuffle.partitions 2
spark.ui.enabled false
"""
#: Makes a report; says each table that it has counted and waits for a line before it goes on.
_PROGRAM: Final = """
import json, sys
from datetime import date
from scripts.analytics import session, terminal
from scripts.analytics.report import command
from scripts.analytics.report.text import as_document

master, lake, since, until = sys.argv[1:]

def tell(progress, done, what=""):
    if "counting" in progress._verb:
        print(done, flush=True)
        sys.stdin.readline()

terminal.Progress.tell = tell
with session.started(master, None) as spark:
    asked = command.Period(date.fromisoformat(since), date.fromisoformat(until), lake)
    made = command.make(spark, asked, {}, None, terminal.Progress("report", 1, "sections"))
print(json.dumps(as_document(made)["sections"]), flush=True)
"""


@dataclass
class Process:
    """A process of Spark, with the lines that it has said."""

    running: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    reader: Thread | None = None

    def until(self, words: str) -> str:
        """The line with these words; fails if the process ends without it."""
        assert self.running.stderr is not None
        for line in self.running.stderr:
            self.said.append(line)
            if words in line:
                self.reader = Thread(target=self.running.stderr.read)  # so that it never waits for one
                self.reader.start()
                return line
        pytest.fail(f"it ended without {words!r}: {''.join(line for line in self.said if 'at ' not in line[:5])}")

    def kill(self) -> None:
        """End it and its own children, such as a worker's executors."""
        with suppress(ProcessLookupError):
            os.killpg(self.running.pid, signal.SIGKILL)
        self.running.wait()
        if self.reader is not None:
            self.reader.join()
        if self.running.stderr is not None:
            self.running.stderr.close()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What every process of Spark is given."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "spark-defaults.conf").write_text(_SETTINGS)
    ours = {"SPARK_CONF_DIR": str(folder), "SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
    ours |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": str(folder / "work")}
    ours |= {"JAVA_HOME": str(session.java_home()), "PYSPARK_PYTHON": sys.executable}
    # Java's second compiler would use one of our cores for longer than it saves.
    ours |= {"JAVA_TOOL_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {session.UNVERIFIED}"}
    return os.environ | ours


@contextmanager
def started(environment: dict[str, str], program: str, *words: str) -> Iterator[Process]:
    """A process of Spark for the block."""
    running = subprocess.Popen(
        [str(_SPARK / "bin" / program), *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    process = Process(running)
    try:
        yield process
    finally:
        process.kill()


@contextmanager
def cluster(environment: dict[str, str]) -> Iterator[tuple[str, list[Process]]]:
    """A master and two workers: the master's URL, and the workers."""
    with ExitStack() as opened:
        words = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = opened.enter_context(
            started(environment, "spark-class", "org.apache.spark.deploy.master.Master", *words)
        )
        url = master.until("Starting Spark master at ").split()[-1]
        own = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "600m", url)
        kind = "org.apache.spark.deploy.worker.Worker"
        workers = [opened.enter_context(started(environment, "spark-class", kind, *own)) for _ in range(2)]
        for worker in workers:
            worker.until("Successfully registered with master")
        yield url, workers


@contextmanager
def connect_server(environment: dict[str, str]) -> Iterator[str]:
    """A server of Spark Connect: its URL."""
    port = free_port()
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    words = ["--master", "local[1]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    words += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    with started(environment | {"SPARK_DAEMON_MEMORY": "768m"}, "spark-submit", *words, "spark-internal") as server:
        server.until("Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"


def period() -> tuple[date, date]:
    """The days of the lake."""
    until = datetime.now(UTC).date()
    return until - timedelta(days=DAYS), until


def report(
    environment: dict[str, str], lake: Path, master: str, counted: Callable[[int], object] = lambda _: None
) -> list[dict[str, Any]]:
    """The sections of the report that this Spark makes; `counted` is called with the number of tables so far."""
    words = [sys.executable, "-c", _PROGRAM, master, str(lake), *map(str, period())]
    with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        last = ""
        for line in running.stdout:
            last = line
            if line.strip().isdigit():
                counted(int(line))
                running.stdin.write("\n")
                running.stdin.flush()
    assert running.returncode == 0
    sections: list[dict[str, Any]] = json.loads(last)
    return sections


def test_every_kind_of_spark_makes_the_same_report(
    spark: SparkSession, exported_lake: Path, environment: dict[str, str]
) -> None:
    asked = command.Period(*period(), str(exported_lake))
    local = json.loads(json.dumps(as_document(command.make(spark, asked, {}))["sections"]))
    assert sum(len(section["rows"]) for section in local) > 200

    with connect_server(environment) as url:
        assert report(environment, exported_lake, url) == local

    with cluster(environment) as (url, workers):

        def lose_a_worker(counted: int) -> None:
            if counted == 4:
                workers[0].kill()

        assert report(environment, exported_lake, url, lose_a_worker) == local
        assert workers[0].running.returncode == -signal.SIGKILL
        assert workers[1].running.poll() is None
