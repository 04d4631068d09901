"""test_site — the documentation site has every page in its navigation, and its hook knows the repository

Guarantees: a page that is missing in the navigation, or named twice, fails `make check`, before `make docs` builds the
    site (tests/package/test_site.py).
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from scripts.dev.site import linked
from tests.layout.sources import ROOT

if TYPE_CHECKING:
    import pytest

_DOCS: Final = ROOT / "docs"
_HOST: Final = "https://host.example/pillarbox"


def test_the_navigation_has_every_page_once() -> None:
    _, _, navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    named = Counter(re.findall(r"[\w/-]+\.md", navigation))
    assert named == Counter(str(page.relative_to(_DOCS)) for page in _DOCS.rglob("*.md"))


def test_a_how_to_page_is_in_the_folder_of_its_section() -> None:
    _, _, navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    sections = re.findall(r"^  - (\w+)[\w ]*:\n((?:      - .+\n)+)", navigation, re.MULTILINE)
    wanted = {
        f"how-to/{title.lower()}/{name}"
        for title, pages in sections
        for name in re.findall(r"how-to/\S*?([\w-]+\.md)", pages)
    }
    assert wanted == {str(page.relative_to(_DOCS)) for page in (_DOCS / "how-to").rglob("*.md")}


def test_a_link_beyond_the_pages_leads_to_the_host_of_the_repository(caplog: pytest.LogCaptureFixture) -> None:
    text = "[a](../../../sql/README.md#states), [b](../../../tests/chaos/), [c](../../images/x.png), [d](reload.md)"
    assert linked(text, _DOCS / "how-to/operate/upgrade.md", _HOST) == (
        f"[a]({_HOST}/blob/main/sql/README.md#states), [b]({_HOST}/tree/main/tests/chaos), [c](../../images/x.png), "
        "[d](reload.md)"
    )
    assert caplog.records == []


def test_a_dead_link_to_the_repository_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for path in ("../../../gone.md", "../../../../outside.md"):
        assert linked(f"[a]({path})", _DOCS / "how-to/operate/upgrade.md", _HOST) == f"[a]({path})"
        assert caplog.records[-1].levelno == logging.WARNING
        assert path in caplog.messages[-1]


def test_every_test_that_the_pages_name_exists() -> None:
    tests = [f"/{path.relative_to(ROOT)}" for path in (ROOT / "tests").rglob("test_*.py")]
    wrong = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in [*_DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "sql" / "README.md"]
        for name in re.findall(r"`((?:tests/)?(?:\w+/)*test_\w+\.py)", page.read_text(encoding="utf-8"))
        if not any(path.endswith(f"/{name}") for path in tests)
    ]
    assert wrong == []
