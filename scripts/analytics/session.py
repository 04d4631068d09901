"""session — a Spark session configured for this machine and its task

Owns: the choice of Java, Spark's settings, and a session for the length of a block.
Guarantees: a local Spark listens on loopback only, serves no web page and logs nothing; the configuration of a cluster
    (`--master`) is not changed. Spark runs at a lower priority than mail, on all cores except one: at nice 10, and Java
    and its Python workers only on idle processors (SCHED_IDLE). A missing or too old Java is a one-line error.
Raises: PillarboxError.
See: scripts/analytics/java_runtime.py; https://spark.apache.org/docs/latest/configuration.html; sched(7).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from scripts.analytics import java_runtime
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_NICE: Final = 10
#: A local Spark whose workers leave one core for mail.
MASTER: Final = f"local[{max(1, (os.cpu_count() or 1) - 1)}]"
_SMALLEST, _LARGEST = 1 << 30, 8 << 30  # octets of driver memory
_LIGHTEST: Final = 3 << 30  # if rows bypass Java: 1 GB cannot hold the workers' tables of 50 million attempts
#: Options for a Java that only plans and hands out work: its second compiler and parallel collector do not pay off.
_LIGHT: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Loggers of PySpark that print a page of JSON about an error that is also raised.
_TALKATIVE: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_PATIENCE: Final = 30.0  # seconds for Java to end
_LONGEST: Final = 300  # characters of an error's text
_MEMORY: Final = re.compile(r"[1-9]\d*[kmgt]b?", re.IGNORECASE)


def java_home() -> Path:
    """The folder of a Java that Spark supports; PillarboxError if there is none."""
    if (java_runtime.JAVA_HOME / "bin" / "java").exists():
        return java_runtime.JAVA_HOME
    old = []
    for java in java_runtime.installed():
        if java_runtime.suits(java):
            return java.resolve().parents[1]
        if (found := java_runtime.version(java)) is not None:
            old.append(f"{java} is Java {found}")
    raise PillarboxError("; ".join([*old, java_runtime.HOW_TO_GET]))


def settings(master: str, memory: str | None, cores: int, free: int, *, light: bool) -> dict[str, str]:
    """Spark's settings on a machine with `cores` and `free` octets of memory; light: rows do not pass through Java."""
    if memory is not None and not _MEMORY.fullmatch(memory):
        raise PillarboxError(f'--memory: "{memory}" is not a size; allowed: 512m, 2g')
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        size = f"{max(_SMALLEST, min(_LIGHTEST if light else _LARGEST, free // 4)) >> 20}m"
        chosen |= {
            "spark.driver.memory": memory or size,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            # Arrow keeps freed memory: if returned, it would be allocated and cleared again for the next rows.
            "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
        }
        if light:
            chosen["spark.driver.extraJavaOptions"] = _LIGHT
    elif memory:
        chosen["spark.driver.memory"] = memory
    return chosen


@contextmanager
def started(master: str = MASTER, memory: str | None = None, *, light: bool = False) -> Iterator[SparkSession]:
    """A Spark session for the block; it and its Java process end with it.

    light: as in `settings`.
    """
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if os.getpriority(os.PRIO_PROCESS, 0) < _NICE:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    if master == MASTER:
        _leave_a_core()
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - loaded only for Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.logger import PySparkLogger  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    for name in _TALKATIVE:
        PySparkLogger.getLogger(name).disabled = True
    chosen = settings(master, memory, os.cpu_count() or 1, _free(), light=light)
    builder = SparkSession.builder.master(master).appName("pillarbox analytics")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        try:
            with _errors_to(said):
                spark = builder.getOrCreate()
        except (PySparkException, Py4JJavaError, OSError) as error:
            raise PillarboxError(f"Spark cannot start with --master {master}: {_reason(error, said)}") from None
        context = type(spark.sparkContext)
        gateway = context._gateway  # noqa: SLF001 - the only way to its process
        try:
            java = getattr(gateway, "proc", None)
            if java is not None and master.startswith("local"):
                _come_last(java.pid)
            yield spark
        finally:
            spark.stop()
            if gateway is not None:
                gateway.shutdown()
                with suppress(AttributeError, OSError):
                    gateway.proc.stdin.close()
                    try:
                        gateway.proc.wait(timeout=_PATIENCE)
                    except subprocess.TimeoutExpired:  # it has the lowest priority, and the machine is busy
                        gateway.proc.kill()
                # Otherwise the next session of this process would use the Java that has ended.
                context._gateway = context._jvm = None  # noqa: SLF001 - see above
            said.seek(0)
            sys.stderr.writelines(line for line in said if line.startswith("pillarbox: "))


def _leave_a_core() -> None:
    """Keep this process and its children, Java's threads included, off one core, if the system allows it."""
    with suppress(AttributeError, OSError):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) == os.cpu_count() and len(cores) > 1:
            os.sched_setaffinity(0, cores[1:])


def _come_last(java: int) -> None:
    """Let Java and its future children run only on idle processors; nice alone still gets a share of busy ones."""
    done: set[str] = set()
    # A thread created meanwhile inherits the class of its creator, which may not have been changed yet.
    while new := {thread.name for thread in Path(f"/proc/{java}/task").glob("*")} - done:
        for thread in new:
            with suppress(AttributeError, OSError):  # not Linux, or a thread that has just ended
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))
        done |= new


@contextmanager
def _errors_to(file: IO[str]) -> Iterator[None]:
    """Make `file` the standard error of processes started in this block: Java always prints a greeting there."""
    ours = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def first_words(error: Exception) -> str:
    """The text of a Spark error in one line; for Java's errors the exception, which follows the place of the call."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    thrown = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
    return " ".join(thrown.split())[:_LONGEST]


def _reason(error: Exception, said: IO[str]) -> str:
    """The error's text, and Java's last line."""
    said.seek(0)
    lines = [line.strip() for line in said if "Exception" in line or "Error" in line]
    return "; ".join([first_words(error), *lines[:1]])


def _free() -> int:
    """Available memory in octets."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    return 4 << 30
