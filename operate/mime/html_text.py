"""html_text — the readable text of HTML, without anything active

Owns: leaving out tags, comments, scripts, styles and embedded documents, and saying which of them there were.
Guarantees: pure; never raises. A tag, an attribute, a comment ends where HTML's tokenizer ends it, and what a mail
    program may show is text: so is what is never closed. Where the end depends on more than the tokenizer, a note says
    so. One walk from tag to tag: the standard library's parser took 35 seconds for 64 KiB of `<a/`.
See: https://html.spec.whatwg.org/multipage/parsing.html#tokenization.
"""

from __future__ import annotations

import html
import re
from typing import Final

_BLOCKS: Final = frozenset(
    {"p", "div", "br", "tr", "li", "ul", "ol", "table", "h1", "h2", "h3", "h4", "blockquote", "hr"}
    | {"title", "textarea", "xmp"}
)
_HIDDEN: Final = {"script": "scripts", "style": "styles"}  # as they are called in a note
_CLOSED: Final = {  # elements without tags within: where they end
    **{
        name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE)
        for name in (*_HIDDEN, "title", "textarea", "xmp", "iframe", "noembed", "noframes")
    },
    "plaintext": re.compile(r"(?!)"),
}
_EMBEDS: Final = frozenset({"iframe", "frame", "object", "embed"})  # what they show is an attribute, or elsewhere
_DEPENDS: Final = frozenset({"svg", "math", "select", "noscript"})  # in these, some of the others may have tags
_MARK: Final = re.compile(r"<(?:(!--)|(!\[CDATA\[)|(/?[A-Za-z])|[!?/])")
_COMMENT: Final = re.compile(r"-?>|(.*?)--!?>", re.DOTALL)
_TAG: Final = re.compile(
    r"""<(/?)([A-Za-z][^\t\n\f\r />]*+)
    (?: [\t\n\f\r /]++
      | (?: =[^\t\n\f\r />=]*+ | [^\t\n\f\r />=]++ )  # the name of an attribute, which may begin with =
        (?: [\t\n\f\r ]*+=[\t\n\f\r ]*+
            (?: "[^"]*+(?:"|\Z) | '[^']*+(?:'|\Z) | (?=>) | [^\t\n\f\r >"'][^\t\n\f\r >]*+ )
        )?+
    )*+>""",
    re.VERBOSE,
)
_SPACES: Final = re.compile(r"[^\S\n]+")
_LONG_NUMBER: Final = re.compile(r"&#[xX]?[0-9A-Fa-f]{9,}+")  # no character has one, and int() refuses the longest


def from_html(text: str) -> tuple[str, tuple[str, ...]]:
    """The text of HTML, where blocks end lines, and notes on the parts that it lacks."""
    walk = _Walk(text)
    walk.through()
    shown = _LONG_NUMBER.sub("\N{REPLACEMENT CHARACTER}", "".join(walk.shown))
    left_out = ", ".join(("links", "pictures", "fields of forms", *walk.left_out))
    doubts = (f"there is <{name}>: a mail program may show another text than is shown here" for name in walk.doubts)
    return _SPACES.sub(" ", html.unescape(shown)), (f"made from HTML; not shown: {left_out}", *doubts)


class _Walk:
    """One way from tag to tag."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.shown: list[str] = []
        self.left_out: dict[str, None] = {}
        self.doubts: dict[str, None] = {}

    def through(self) -> None:
        """Go to the end, or to a tag that is not closed: that is text."""
        at = 0
        while (mark := _MARK.search(self._text, at)) is not None:
            self._show(at, mark.start())
            end = self._after(mark)
            if end is None:
                at = mark.start()
                break
            at = end
        self._show(at, len(self._text))

    def _after(self, mark: re.Match[str]) -> int | None:
        """Where what begins here has ended; None where it does not."""
        text, comment, cdata, tag = self._text, *mark.groups()
        if tag:
            return self._tag(mark.start())
        if comment:
            ended = _COMMENT.match(text, mark.end())
            if ended is not None and (ended[1] or "").strip():
                self.left_out["text for Outlook alone" if ended[1].lstrip().startswith("[") else "comments"] = None
            return ended.end() if ended is not None else None
        end = text.find("]]>" if cdata else ">", mark.end())
        if cdata:  # text in SVG and XHTML, and elsewhere a comment that ends at the first >
            self.doubts["![CDATA[]]"] = None
            self._show(mark.end(), end if end >= 0 else len(text))
            return end + 3 if end >= 0 else len(text)
        return end + 1 if end >= 0 else None

    def _tag(self, start: int) -> int | None:
        text, tag = self._text, _TAG.match(self._text, start)
        if tag is None:
            return None
        name, at = tag[2].lower(), tag.end()
        if name in _BLOCKS:
            self.shown.append("\n")
        if tag[1]:
            return at
        if name in _EMBEDS:
            self.left_out["embedded documents"] = None
        if name in _DEPENDS:
            self.doubts[name] = None
        if name not in _CLOSED:
            return at
        closed = _CLOSED[name].search(text, at)
        end = closed.start() if closed is not None else len(text)
        if name not in _HIDDEN or closed is None or self.doubts or text[at - 2] == "/":
            self._show(at, end)
        elif text[at:end].strip():
            self.left_out[_HIDDEN[name]] = None
        return end

    def _show(self, start: int, end: int) -> None:
        self.shown.append(self._text[start:end].replace("\n", " "))
