"""json_reference — the page about the JSON of commands, from the table of their forms"""

from __future__ import annotations

import json
from typing import Any, Final

from scripts.output.commands import COMMANDS, schema_text

_INTRO: Final = """# JSON of commands

Every command takes `--json`, except `demo`, `up`, `sendmail`, `sink`, `psql` and `completion`. A command that lists
prints JSON lines: one object a line, none for an empty list. A command that is about one thing prints one object.
Standard output has nothing else; messages go to standard error, and the exit status is the same with and without
`--json`. Lines are
ASCII. A command that asks at a terminal prints its preview as one object more, before the question. Times are ISO 8601
with an offset. Sizes are in octets. `null` means that the value is missing. A later version may add fields, but it
renames no field and changes no meaning.

[json.schema.json](json.schema.json) is the JSON Schema (draft 2020-12) of all of it: a property for each command, a
definition for each form."""


def page() -> str:
    """The page, without its first line."""
    root = json.loads(schema_text())
    head = "| command | prints | form |\n|---|---|---|"
    rows = []
    for command, output in COMMANDS.items():
        forms = " or ".join(f"[{form.__name__}](#{form.__name__.lower()})" for form in output.forms)
        rows.append(f"| `{command}` | {'lines' if output.lines else 'one object'} | {forms} |")
    parts = [_INTRO, "\n".join([head, *rows])]
    for name, form in sorted(root["$defs"].items()):
        fields = form.get("properties", {})
        table = ["| field | type | meaning |", "|---|---|---|"]
        table += [
            f"| `{field}` | {_type(value)} | {value.get('description', '').replace('|', chr(92) + '|')} |"
            for field, value in fields.items()
        ]
        text = form.get("description", "")
        parts.append(f"## {name}\n\n{text}" + ("\n\n" + "\n".join(table) if fields else ""))
    return "\n\n".join(parts) + "\n"


def _type(value: dict[str, Any]) -> str:
    """The type of a field in a few words."""
    if "anyOf" in value:
        return " or ".join(_type(each) for each in value["anyOf"])
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}"
    plain: str = value.get("type", "any")
    return {"date-time": "time", "uuid": "UUID"}.get(value.get("format", ""), plain)
