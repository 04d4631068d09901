"""session — a Spark session configured for this machine and its task

Owns: the choice of Java, Spark's settings, and a session for the length of a block: local, on a cluster, or on a server
    of Spark Connect.
Guarantees: a local Spark listens on loopback only, serves no web page and logs nothing; the configuration of a cluster
    or a server (`--master`) is not changed. A local Spark runs in idle time, after mail. A missing or too old
    Java, or a folder for temporary files from which no code may run, is a one-line error; Spark Connect needs neither
    here.
Raises: PillarboxError.
See: scripts/analytics/java_runtime.py; https://spark.apache.org/docs/latest/configuration.html; priority.py.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import urlsplit

from scripts.analytics import java_runtime, priority
from shared.errors import PillarboxError, cause
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

#: A local Spark on all cores.
MASTER: Final = "local[*]"
#: The scheme of a server of Spark Connect.
CONNECT: Final = "sc://"
_SMALLEST, _LARGEST = 1 << 30, 4 << 30  # octets of driver memory
#: Loggers of PySpark that print a page of JSON about an error that is also raised.
_TALKATIVE: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_WAITING: Final = "1h"
_FEW: Final = 2  # cores on which one thread collects garbage as fast as several
_PATIENCE: Final = 30.0  # seconds for Java to end
_MEMORY: Final = re.compile(r"([1-9][0-9]{0,18})([kmgt])b?", re.IGNORECASE)
_LEAST: Final = 512 << 20  # octets: less is not enough for Spark itself
_CONNECT_PORT: Final = 15002  # of a server of Spark Connect
_ANSWER: Final = 10.0  # seconds for it to answer
#: Settings of every session; a server of Spark Connect takes these too.
ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    # A sum of counts stays one: rows with the same text are counted together, so that a text is made normal once and
    # not for each row.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.CollapseGroupedSumOfCount",
    # What is kept is read a few times: to compress it takes longer than to keep it.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
#: Settings for small tables: compiling or adapting a plan costs more than running it.
SMALL: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
#: Java's second compiler pays off after a minute of work.
_BRIEF: Final = "-XX:TieredStopAtLevel=1"
#: And then for what runs for each row: by Java's own thresholds it took a third of a report, half of it for plans.
_LATER: Final = "-XX:CompileThresholdScaling=3"
#: Classes that pip has installed need no verification, which takes a sixth of a short run.
UNVERIFIED: Final = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"


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


def check_temporary_folder(master: str) -> None:
    """PillarboxError if no code may run from the folder where Java unpacks libraries of machine code."""
    local = master.startswith("local")
    folder = tempfile.gettempdir() if local else "/tmp"  # noqa: S108 - Java's own
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        remedy = "a TMPDIR that is mounted without noexec" if local else "a /tmp without noexec"
        raise PillarboxError(f"{folder} is mounted with noexec, and Spark runs code from there; allowed: {remedy}")


def settings(master: str, memory: str | None, cores: int, free: int, *, small: bool = False) -> dict[str, str]:
    """Spark's settings on a machine with `cores` and `free` octets of memory.

    small: a local Spark reads so little that starting it and planning take longest.
    """
    if memory is not None and _octets(memory) < _LEAST:
        raise PillarboxError(f"--memory: {show(memory)} is not a size from 512m on; allowed: 512m, 2g")
    if master.startswith(CONNECT):
        return dict(ALWAYS)
    chosen = ALWAYS | {
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        # Otherwise Java is asked about each operation of a column, to remember the line of Python that it is in.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master.startswith("local"):
        collector = "-XX:+UseSerialGC" if cores <= _FEW else "-XX:+UseParallelGC"
        chosen |= {
            "spark.sql.shuffle.partitions": str(cores),
            # Planning again between the stages of a query finds nothing better for as many partitions as cores.
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.memory": memory or f"{max(_SMALLEST, min(_LARGEST, free // 4)) >> 20}m",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            # Between two of its turns a process that runs in idle time may wait for long.
            "spark.network.timeout": _WAITING,
            "spark.python.authenticate.socketTimeout": _WAITING,
            # Arrow keeps freed memory: if returned, it would be allocated and cleared again for the next rows.
            "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
            # Java does not know TMPDIR.
            "spark.driver.extraJavaOptions": " ".join(
                [collector, UNVERIFIED, _BRIEF if small else _LATER, f'"-Djava.io.tmpdir={tempfile.gettempdir()}"']
            ),
        }
        if small:
            chosen |= SMALL
    elif memory:
        chosen["spark.driver.memory"] = memory
    return chosen


@contextmanager
def started(
    master: str = MASTER, memory: str | None = None, *, small: bool = False, awaited: bool = False
) -> Iterator[SparkSession]:
    """A Spark session for the block; it and its Java process end with it.

    small: as in `settings`. awaited: its figures are wanted soon, so it runs at nice 10 and not only in idle time; so
    does the driver of a cluster, which has to answer the executors in time.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - loaded only for Spark
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.logger import PySparkLogger  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    for name in _TALKATIVE:
        PySparkLogger.getLogger(name).disabled = True
    if awaited or not master.startswith("local"):
        priority.lower()
    else:
        priority.only_in_idle_time()
    chosen = settings(master, memory, os.cpu_count() or 1, _free(), small=small)
    builder = SparkSession.builder.appName("pillarbox analytics").config(map=dict(chosen))
    if master.startswith(CONNECT):
        _check_server(master)
        builder = builder.remote(master)
    else:
        _prepare(master)
        builder = builder.master(master)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        try:
            with _errors_to(said):
                spark = builder.getOrCreate()
        except (PySparkException, Py4JJavaError, OSError) as error:
            raise PillarboxError(f"Spark cannot start with --master {master}: {_reason(error, said)}") from None
        gateway = SparkContext._gateway  # noqa: SLF001 - the only way to its process
        try:
            yield spark
        finally:
            spark.stop()
            if gateway is not None:
                gateway.shutdown()
                with suppress(AttributeError, OSError):
                    gateway.proc.stdin.close()
                    try:
                        gateway.proc.wait(timeout=_PATIENCE)
                    except subprocess.TimeoutExpired:  # it has a low priority, and the machine is busy
                        gateway.proc.kill()
                # Otherwise the next session of this process would use the Java that has ended.
                SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - see above
            said.seek(0)
            sys.stderr.writelines(line for line in said if line.startswith("pillarbox: "))


def _check_server(master: str) -> None:
    """PillarboxError if no server answers there; Spark itself would ask it again for ten minutes."""
    try:
        place = urlsplit(master)
        with socket.create_connection((place.hostname or "", place.port or _CONNECT_PORT), timeout=_ANSWER):
            pass
    except (OSError, ValueError) as error:
        raise PillarboxError(f"Spark cannot start with --master {master}: {cause(error)}") from None


def _octets(memory: str) -> int:
    """A size as Java has it; 0 for what is none."""
    found = _MEMORY.fullmatch(memory)
    return int(found[1]) << 10 * ("kmgt".index(found[2].lower()) + 1) if found else 0


def _prepare(master: str) -> None:
    """Set what Spark's scripts and Java read before any setting counts."""
    check_temporary_folder(master)
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


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


def _reason(error: Exception, said: IO[str]) -> str:
    """The error's text, and Java's last line."""
    from scripts.analytics.spark_errors import first_words  # noqa: PLC0415 - it loads Spark

    said.seek(0)
    lines = [line.strip() for line in said if any(word in line for word in ("Exception", "Error", " ERROR "))]
    return "; ".join([first_words(error), *lines[:1]])


def _free() -> int:
    """Available memory in octets."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    return 4 << 30
