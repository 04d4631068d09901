"""config — `pillarbox config`: shows the effective configuration of queued

Owns: `config show`.
Guarantees: it prints the values that a worker would use: defaults filled in, groups inherited, `!Env` substituted.
    Passwords are masked. Sizes are octets, durations as in the file. Changes nothing.
Raises: ConfigError for a file that cannot be used, as the daemons do.
See: docs/how-to/deliver/transport-groups.md
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from scripts.options import add_config
from scripts.output import records
from shared.config.queued.load import load_queued
from shared.config.units import format_duration
from shared.errors import PillarboxError
from shared.masking import MASK, mask, names_secret, show

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `config` and its verbs to the command line."""
    parser = subparsers.add_parser("config", help="the configuration of queued, as a worker uses it")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("show", help="print every value in JSON, which is YAML as well")
    verb.add_argument("section", nargs="?", metavar="SECTION", help="one key of queued.yaml only, such as transports")
    add_config(verb)
    verb.add_argument("--json", action="store_true", help="in one line")
    verb.set_defaults(func=print_section)


def print_section(options: argparse.Namespace) -> int:
    """Print queued.yaml, or one of its sections, complete."""
    values = plain(load_queued(options.config / "queued.yaml"), ())
    if options.section is not None:
        if options.section not in values:
            raise PillarboxError(f"queued.yaml has no section {show(options.section)}; allowed: {', '.join(values)}")
        values = {options.section: values[options.section]}
    if options.json:
        records.one(values)
    else:
        print(json.dumps(values, indent=2, ensure_ascii=False))
    return 0


def plain(value: Any, path: tuple[str | int, ...]) -> Any:
    """A value of the models as one would write it; `path`: the keys that lead to it."""
    if hasattr(type(value), "model_fields"):
        fields = type(value).model_fields.items()
        return {
            key: plain(getattr(value, name), (*path, key)) for name, field in fields for key in [field.alias or name]
        }
    if isinstance(value, dict):
        return {str(key): plain(each, (*path, str(key))) for key, each in value.items()}
    if isinstance(value, list | set | frozenset) or type(value) is tuple:
        return [plain(each, (*path, index)) for index, each in enumerate(value)]
    if isinstance(value, timedelta):
        return format_duration(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return MASK if names_secret(path) else mask(str(value))
