"""site — a hook of MkDocs: links from pages to the rest of the repository lead to its host

Guarantees: a link beyond docs/ that leads to no file is a warning, and `make docs` takes warnings for errors. Links
    within docs/ are left to MkDocs, which checks them with their anchors.
See: mkdocs.yml; https://www.mkdocs.org/user-guide/configuration/#hooks.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT: Final = Path(__file__).resolve().parents[2]
_DOCS: Final = _ROOT / "docs"
_LINK: Final = re.compile(r"(?<=\]\()(?P<path>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_log = logging.getLogger("mkdocs.hooks.site")


def on_page_markdown(markdown: str, /, page: Any, config: Mapping[str, Any], **_: Any) -> str:
    """The page with absolute links to what is outside docs/."""
    return linked(markdown, _DOCS / page.file.src_uri, config["extra"]["repository"])


def linked(markdown: str, file: Path, repository: str) -> str:
    """The text of this file of docs/ with its links beyond docs/ made absolute; a dead one is logged."""

    def replaced(link: re.Match[str]) -> str:
        target = (file.parent / link["path"]).resolve()
        if target.is_relative_to(_DOCS):
            return link[0]
        if not target.exists() or not target.is_relative_to(_ROOT):
            _log.warning("%s links to %s, which is not in the repository", file.relative_to(_DOCS), link["path"])
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"{repository}/{kind}/main/{target.relative_to(_ROOT)}{link['anchor'] or ''}"

    return _LINK.sub(replaced, markdown)
