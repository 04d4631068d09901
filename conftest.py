"""conftest — lists the fixtures every ring of tests may ask for

Owns: the list; pytest takes it only from the root of the tree.
See: tests/fixtures, one file per thing a test can need.
"""

from __future__ import annotations

pytest_plugins = [
    "tests.fixtures.corpus",
    "tests.fixtures.peers",
    "tests.fixtures.postgres",
    "tests.fixtures.spark",
]
