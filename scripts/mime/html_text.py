"""html_text — the readable text of HTML, without anything active

Owns: leaving out tags, comments, scripts and pictures.
Guarantees: pure; never raises. One walk from tag to tag, each looked at for a bounded length: the standard library's
    parser took 35 seconds for 64 KiB of `<a/`.
"""

from __future__ import annotations

import html
import re
from typing import Final

_BLOCKS: Final = frozenset(
    {"p", "div", "br", "tr", "li", "ul", "ol", "table", "h1", "h2", "h3", "h4", "blockquote", "hr"}
)
_HIDDEN: Final = {
    name: re.compile(rf"</{name}(?![A-Za-z0-9])", re.IGNORECASE)
    for name in ("script", "style", "title", "template", "svg", "math", "noscript", "iframe", "object", "textarea")
}
_LONGEST: Final = 2000  # characters of a tag whose quotes are minded
_TAG: Final = re.compile(r"<(?:(!--)|/?([A-Za-z][A-Za-z0-9]{0,20}+)|[!?/])")
_ATTRIBUTES: Final = re.compile(r"(?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+>")
_SPACES: Final = re.compile(r"[^\S\n]+")
_LONG_NUMBER: Final = re.compile(r"&#[xX]?[0-9A-Fa-f]{9,}+")  # no character has one, and int() refuses the longest


def from_html(text: str) -> str:
    """The text of HTML; blocks end lines."""
    told: list[str] = []
    at = 0
    while (tag := _TAG.search(text, at)) is not None:
        told.append(_SPACES.sub(" ", text[at : tag.start()].replace("\n", " ")))
        name = (tag[2] or "").lower()
        at = _after(text, tag)
        if name in _BLOCKS:
            told.append("\n")
        if name in _HIDDEN and not text.startswith("</", tag.start()) and text[at - 2 : at] != "/>":
            end = _HIDDEN[name].search(text, at)
            at = end.start() if end else len(text)
    told.append(text[at:].replace("\n", " "))
    return _SPACES.sub(" ", html.unescape(_LONG_NUMBER.sub("\N{REPLACEMENT CHARACTER}", "".join(told))))


def _after(text: str, tag: re.Match[str]) -> int:
    """Where a tag or a comment has ended."""
    if tag[1]:
        end = text.find("-->", tag.start() + 2)
        return len(text) if end < 0 else end + 3
    whole = _ATTRIBUTES.match(text, tag.end(), tag.end() + _LONGEST)
    if whole is not None:
        return whole.end()
    end = text.find(">", tag.end())
    return len(text) if end < 0 else end + 1
