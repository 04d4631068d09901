"""conftest — lists the fixtures every ring of tests may ask for

Owns: the list, which pytest takes only from the root of the tree, and how patient Hypothesis is.
See: tests/fixtures, one file per thing a test can need.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

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
