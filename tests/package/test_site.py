"""test_site — the documentation site builds without a warning, its pages are reached from the first, nothing is fetched

Needs: the extra docs (`make ready-docs`, which `make docs` and `make package-test` run).
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
_LINK: Final = re.compile(r"""<a\b[^>]*?\shref=["']?([^"'\s>]+)""")
#: What a browser fetches by itself.
_FETCHED: Final = re.compile(
    r"""<(?:link|script|img|iframe|source)\b[^>]*?\s(?:href|src)=["']?((?:https?:)?//[^"'\s>]+)|url\(["']?((?:https?:)?//[^)]+)\)"""
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="the extra docs is not installed: make ready-docs"
)


def build(configuration: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """A build as `make docs` makes it, into a folder."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", configuration, "-d", folder],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_reached_from_the_first(site: Path) -> None:
    reached, ahead = set[Path](), [site / "index.html"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in _LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / unquote(link.partition("#")[0])).resolve()
            if ":" not in link and target.suffix == ".html":
                assert target.exists(), f"{page.name} links to {link}"
                ahead.append(target)
    docs = ROOT / "docs"
    pages = {(site / page.relative_to(docs)).with_suffix(".html") for page in docs.rglob("*.md")}
    assert pages - reached == set()


def test_nothing_is_fetched_from_another_host(site: Path) -> None:
    files = [file for file in site.rglob("*") if file.suffix in {".html", ".css"}]
    assert len(files) > 1
    assert {hit for file in files for hit in _FETCHED.findall(file.read_text(encoding="utf-8"))} == set()
    # With an address on such a host, the theme's script would ask it for stars and releases.
    assert 'data-md-component="source"' not in (site / "index.html").read_text(encoding="utf-8")


def test_dead_links_and_pages_left_out_fail_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# One\n\n[a](gone.md), [b](two.md#gone), [c](../gone.txt)\n")
    (docs / "two.md").write_text("# Two\n")
    (docs / "three.md").write_text("# Three\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT}/mkdocs.yml\nhooks: [{ROOT}/scripts/dev/site.py]\nnav: [index.md, two.md]\n"
    )
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    for fault in ("'gone.md'", "'two.md#gone'", "../gone.txt", "three.md"):
        assert fault in done.stderr, done.stderr
