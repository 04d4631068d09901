"""conftest — lists the fixtures every ring of tests may ask for

Owns: the list, which pytest takes only from the root of the tree, how patient Hypothesis is, that SIGINT ends what a
    test starts, and which tests run on the event loop of the daemons: those of what listens and talks. Loops differ in
    how connections end.
See: tests/fixtures, one file per thing a test can need.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

from shared import event_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

# A script that runs the tests in the background has them, and all they start, ignore it (POSIX, Shell Command Language,
# 2.11).
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast a machine is says nothing about our code, and a first run also builds Hypothesis' tables of characters.
# In CI the examples are the same at every run: a gate says whether a change broke something, not whether luck ran out.
# Elsewhere each run searches anew.
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
    "tests.fixtures.certificates",
    "tests.fixtures.corpus",
    "tests.fixtures.dovecot",
    "tests.fixtures.examined",
    "tests.fixtures.factory",
    "tests.fixtures.heard",
    "tests.fixtures.lake",
    "tests.fixtures.line_fuzz",
    "tests.fixtures.logins",
    "tests.fixtures.operating",
    "tests.fixtures.peers",
    "tests.fixtures.pooler",
    "tests.fixtures.postfix",
    "tests.fixtures.postgres",
    "tests.fixtures.chaos_server",  # after postgres, which it imports
    "tests.fixtures.reviewing",
    "tests.fixtures.rspamd",
    "tests.fixtures.spark",
    "tests.fixtures.submit",
    "tests.fixtures.system",
]

_ON_THE_DAEMONS_LOOP = (
    "test_attack_",
    "test_bdat",
    "test_connections",
    "test_content_check",
    "test_failover",
    "test_metrics_server",
    "test_mta_sts",
    "test_proxy_and_xclient",
    "test_reload_closes",
    "test_session",
    "test_smtp_",
    "test_sources",
    "test_tls",
)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop of this test, by its name."""
    if item.path.parent.name == "integration" and item.path.name.startswith(_ON_THE_DAEMONS_LOOP):
        return {"uvloop": event_loop.new}
    return {"asyncio": asyncio.new_event_loop}
