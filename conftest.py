"""conftest — configures pytest for all tests

Owns: the list of fixture modules, which pytest accepts only in the root of the tree; Hypothesis' settings; the handling
    of SIGINT; the start of daemons without imports; the order of the rooms; the choice of tests that run on the
    daemons' event loop (those of network code, because loops differ in how connections end); and the last line, which
    names the skipped tests and the reasons.
See: tests/fixtures, one file for each kind of fixture.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from shared import event_loop
from tests.fixtures.daemons import preloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

# A shell script that runs the tests in the background makes them and their children ignore SIGINT (POSIX, Shell Command
# Language, 2.11).
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of daemons and commands; most of a start would be imports.
subprocess.Popen = preloaded.Popen  # type: ignore[misc]

# No deadline: the speed of the machine is not a property of our code, and a first run also builds Hypothesis' tables.
# In CI every run has the same examples, so that a failure comes from the change, not from chance. Elsewhere each run
# has new examples.
settings.register_profile(
    "pillarbox",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pillarbox")
# Overnight: pytest --hypothesis-profile=long tests/property
settings.register_profile("long", parent=settings.get_profile("pillarbox"), derandomize=False, max_examples=3000)

pytest_plugins = [
    "tests.fixtures.daemons.api",
    "tests.fixtures.peers.certificates",
    "tests.fixtures.corpus",
    "tests.fixtures.peers.dovecot",
    "tests.fixtures.peers.web.oidc_provider",
    "tests.fixtures.database.accounts",
    "tests.fixtures.database.connected",
    "tests.fixtures.database.examined",
    "tests.fixtures.database.factory",
    "tests.fixtures.heard",
    "tests.fixtures.queue.hooked",
    "tests.fixtures.peers.web.hooks",
    "tests.fixtures.analytics.lake",
    "tests.fixtures.daemons.line_fuzz",
    "tests.fixtures.daemons.logs",
    "tests.fixtures.database.logins",
    "tests.fixtures.database.operating",
    "tests.fixtures.peers.peers",
    "tests.fixtures.peers.pooler",
    "tests.fixtures.peers.postfix",
    "tests.fixtures.servers.postgres",
    "tests.fixtures.servers.chaos_server",  # after postgres, which it imports
    "tests.fixtures.database.reviewing",
    "tests.fixtures.peers.rspamd",
    "tests.fixtures.analytics.spark",
    "tests.fixtures.daemons.submit",
    "tests.fixtures.daemons.system",
]

#: Folders and files below tests/ with tests that run on the daemons' event loop.
_ON_THE_DAEMONS_LOOP = (
    "integration/attacks/",
    "integration/delivery/test_connections",
    "integration/delivery/test_failover",
    "integration/delivery/test_reload_closes",
    "integration/delivery/test_smtp_",
    "integration/delivery/test_sources",
    "integration/doctor/test_metrics_server",
    "integration/routing/test_mta_sts",
    "integration/routing/test_tls",
    "integration/login/test_session_login",
    "integration/smtpd/test_bdat",
    "integration/smtpd/test_content_check",
    "integration/smtpd/test_proxy_and_xclient",
    "integration/smtpd/test_session",
)
#: Rooms of tests with the longest files, which begin first where several processes run tests: a long one that begins
#: last keeps one process busy while the others are idle.
_LONG_FIRST = ("analytics", "property", "scenario", "integration")
#: A file whose Spark runs only in idle time, of which there is some at the end.
_IN_IDLE_TIME = "analytics/test_session.py"
#: The folder whose tests share a Spark session.
_SHARES_SPARK = "tests/analytics/with_spark/"
_TESTS = Path(__file__).parent / "tests"


@cache
def _place(file: Path) -> str:
    """The name of a file below tests/; kept, because a file has up to hundreds of tests."""
    return file.relative_to(_TESTS).as_posix()


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop of a test, by its file."""
    if _place(item.path).startswith(_ON_THE_DAEMONS_LOOP):
        return {"uvloop": event_loop.new}
    return {"asyncio": asyncio.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the collector of garbage, which would look at all tests so far again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """From here on the collector of garbage passes over the thousands of tests."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the rooms with long files first, and what waits for idle time last."""

    def turn(item: pytest.Item) -> tuple[bool, int]:
        place = _place(item.path)
        room = place.partition("/")[0]
        return place == _IN_IDLE_TIME, _LONG_FIRST.index(room) if room in _LONG_FIRST else len(_LONG_FIRST)

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Run the tests of a file, and all tests that share a Spark session, in one process: its start takes 15 s."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # noqa: PLC0415

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _SHARES_SPARK if file.startswith(_SHARES_SPARK) else file

    return Together(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line with the skipped tests and the reasons."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped")
    )
    if reasons:
        listed = "; ".join(f"{count} tests: {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"skipped: {listed}")
