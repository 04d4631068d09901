"""conftest — lists the fixtures every ring of tests may ask for

Owns: the list, which pytest takes only from the root of the tree, and how patient Hypothesis is.
See: tests/fixtures, one file per thing a test can need.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast a machine is says nothing about our code, and a first run also builds Hypothesis' tables of characters.
settings.register_profile("pillarbox", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pillarbox")
# Overnight: pytest --hypothesis-profile=long tests/property
settings.register_profile("long", parent=settings.get_profile("pillarbox"), max_examples=3000)

pytest_plugins = [
    "tests.fixtures.corpus",
    "tests.fixtures.examined",
    "tests.fixtures.factory",
    "tests.fixtures.heard",
    "tests.fixtures.logins",
    "tests.fixtures.peers",
    "tests.fixtures.pooler",
    "tests.fixtures.postgres",
    "tests.fixtures.spark",
    "tests.fixtures.submit",
    "tests.fixtures.system",
]
