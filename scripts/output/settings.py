"""settings — the options and the preview of commands that change settings: suspends, schedules, keys …

Owns: --dry-run of these commands, and what a preview of them prints.
Guarantees: a preview says that nothing was changed.
See: operate/settings/change.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from operate.shapes.settings import SettingsPreview, SettingsUndone
from scripts.output import records
from scripts.output.reason import add_reason
from scripts.output.table import Column, Table
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from operate.shapes.settings import Setting
    from operate.shapes.shape import Shape

_COLUMNS: Final = (
    Column("key", least=12, whole=True),
    Column("change"),
    Column("values", wraps=True),
)


def add_preview(verb: argparse.ArgumentParser) -> None:
    """The option that only shows what would change."""
    verb.add_argument("--dry-run", action="store_true", help="only show what would change")


def add_options(verb: argparse.ArgumentParser) -> None:
    """The same, and why."""
    add_preview(verb)
    add_reason(verb)


def tell[Result: Shape](
    options: argparse.Namespace, done: Result | SettingsPreview, words: Callable[[Result], str]
) -> int:
    """Print what was done, in these words, or what would be; the exit status 0."""
    if options.json:
        records.one(done.model_dump())
    elif isinstance(done, SettingsPreview):
        show(done)
        print("nothing was changed")
    else:
        print(words(done))
    return 0


def show(preview: SettingsPreview, before: str = "") -> None:
    """Print what would be changed; `before`: the word before the verb."""
    Table(_COLUMNS).print((each.key, *_change(each)) for each in preview.sample)
    wanted = how_many(preview.wanted, "setting")
    print(f"{before}{preview.verb}: {preview.changed} of {wanted}{left(preview)}")


def left(done: SettingsPreview | SettingsUndone) -> str:
    """What an undo leaves as it is."""
    skipped = done.skipped if isinstance(done, SettingsUndone) else done.wanted - done.changed
    if not done.left:
        return ""
    more = f" and {skipped - len(done.left)} more" if skipped > len(done.left) else ""
    return f"; {', '.join(done.left)}{more} changed since and left"


def _change(setting: Setting) -> tuple[str, str]:
    """What becomes of a row, and its values, or those that differ."""
    was, made = setting.before, setting.after
    if was is None or made is None:
        values = made or was or {}
        said = ", ".join(f"{name}={_value(value)}" for name, value in values.items() if value is not None)
        return ("added" if was is None else "removed"), said
    return "changed", ", ".join(
        f"{name}: {_value(was.get(name))} → {_value(value)}" for name, value in made.items() if was.get(name) != value
    )


def _value(value: Any) -> str:
    return "-" if value is None else records.line({"": value})[5:-1] if isinstance(value, dict | list) else str(value)
