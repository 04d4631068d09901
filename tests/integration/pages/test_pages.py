"""test_pages — every page of docs/ works as written: its commands, its configuration and its SQL, in their order

Owns: the list of pages; each has its reader in tests/fixtures/pages/readers.py.
See: tests/fixtures/pages/walking.py; the quickstart and pages that need Spark have tests of their own beside this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.pages.readers import READERS
from tests.fixtures.pages.walking import Walk

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.counts_pages


@pytest.mark.parametrize("page", READERS)
def test_the_page_works_as_written(page: str, database: str, administrator: str, tmp_path: Path) -> None:
    with Walk(tmp_path, database, READERS[page], administrator) as walk:
        walk.page(page)
