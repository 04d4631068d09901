"""conftest — lets each attack run against `pillarbox up`, where PILLARBOX_ATTACK=up says so

Guarantees: an attack that looks inside the server (its events, its budget, a patched part) keeps the server in its own
    process. All other attacks talk to running daemons, like any client.
See: tests/fixtures/daemons/serving.py; `make attack`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.serving import how

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOKS_INSIDE = {"budget", "heard", "monkeypatch"}


@pytest.fixture(autouse=True)
def against_running_daemons(request: pytest.FixtureRequest) -> Iterator[None]:
    """Serve as `pillarbox up` does, where that was asked for and the attack allows it."""
    how.by_up = os.environ.get("PILLARBOX_ATTACK") == "up" and _LOOKS_INSIDE.isdisjoint(request.fixturenames)
    yield
    how.by_up = False
