"""page — the description of the API as one page for people

Owns: its HTML. Pure.
Guarantees: nothing is fetched from elsewhere, and no script runs: what is shown is OpenAPI's own text, escaped.
"""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f4f4f4 } code { padding: 0 .2em }
pre { padding: .6rem; overflow-x: auto } h2 { margin-top: 2.5rem; border-top: 1px solid #ddd; padding-top: 1rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0 }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } code, pre { background: #262626 } }
"""  # noqa: E501 - CSS
_METHODS: Final = ("get", "post", "put", "patch", "delete")


def page(described: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = described["info"]
    body = "".join(_paths(described))
    forms = "".join(_form(name, form) for name, form in sorted(described["components"]["schemas"].items()))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style><h1>{escape(info['title'])}</h1>"
        f'<p>{escape(info.get("description", ""))} For programs: <a href="/v1/openapi.json">openapi.json</a>. Each '
        "request shows a key: <code>Authorization: Bearer pb_…</code></p>"
        f"{body}<h2>Forms</h2>{forms}</html>"
    )


def _paths(described: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in described["paths"].items():
        for method in (each for each in _METHODS if each in methods):
            operation = methods[method]
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{_text(operation)}</p>"
            rows = [(each["name"], each["in"], each.get("description", "")) for each in operation.get("parameters", ())]
            if rows:
                yield _table(("parameter", "in", "meaning"), rows)
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                yield f"<p>Body: {escape(kind)} {_kind(content.get('schema', {}))}</p>"
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    forms = " ".join(_kind(each.get("schema", {})) for each in response.get("content", {}).values())
                    yield f"<p>{status}: {escape(response['description'])} {forms}</p>"


def _text(operation: Mapping[str, Any]) -> str:
    return escape(operation.get("description") or operation.get("summary") or "").replace("\n\n", "<p>")


def _form(name: str, form: Mapping[str, Any]) -> str:
    needed = form.get("required", ())
    rows = [
        (key, _kind(value, plain=True) + (", required" if key in needed else ""), value.get("description", ""))
        for key, value in form.get("properties", {}).items()
    ]
    head = f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(form.get("description", ""))}</p>'
    return head + (_table(("field", "value", "meaning"), rows) if rows else f"<pre>{escape(json.dumps(form))}</pre>")


def _table(heads: tuple[str, ...], rows: list[tuple[str, str, str]]) -> str:
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{lines}</table>"


def _kind(schema: Mapping[str, Any], *, plain: bool = False) -> str:
    """What a value is, as a link where it has a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return name if plain else f'<a href="#{escape(name)}">{escape(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(each, plain=plain) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), plain=plain)}"
    return escape(str(schema.get("format") or schema.get("type") or "any value"))
