"""markup — HTML and SVG elements, escaped by construction

Owns: Markup, text that is known to be markup, and `tag`, the only way to create it.
Guarantees: pure. All other text is escaped, attribute values too, so no value of history can become an element, an
    attribute or a script. Characters that XML does not allow are replaced.
See: HTML Living Standard, section 13.3, escaping.
"""

from __future__ import annotations

import html
from typing import Final

_EMPTY: Final = frozenset({"meta", "line", "rect", "circle", "path", "polyline", "polygon"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Attributes: `class_` is class, `stroke_width` is stroke-width; None leaves one out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(_figure(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY and not children:
        return Markup(f"<{name}{said}>" if name == "meta" else f"<{name}{said}/>")
    return Markup(f"<{name}{said}>{joined(*children)}</{name}>")


def joined(*children: object) -> Markup:
    """The children concatenated; lists are flattened, and text that is not Markup is escaped."""
    return Markup("".join(joined(*child) if isinstance(child, (list, tuple)) else escaped(child) for child in children))


def escaped(value: object) -> str:
    """A value escaped for text and for double quotes."""
    if isinstance(value, Markup):
        return value
    shown = "".join(letter if letter.isprintable() or letter in "\n\t\u2009" else "�" for letter in str(value))
    return html.escape(shown, quote=True)


def _figure(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
