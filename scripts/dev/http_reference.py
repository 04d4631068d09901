"""http_reference — the page about the API over HTTP, from its description by OpenAPI

Guarantees: every route of httpd/routes is on it, with its parameters, the fields of its body and its answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from httpd.app import described
from httpd.problems import RESPONSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INTRO: Final = """# API over HTTP

Every request of [httpd](../how-to/send/use-api-keys.md). A running httpd has the same at `/v1/docs` for people, and at
`/v1/openapi.json` as OpenAPI 3.1 for programs. Each request shows an API key: `Authorization: Bearer pb_…`. What is
refused is a [problem](#problemform) by RFC 9457 (`application/problem+json`), with one of these statuses:"""
_METHODS: Final = ("get", "post", "put", "patch", "delete")


def page() -> str:
    """The page, without its first line."""
    document = described().openapi()
    statuses = ", ".join(f"{status} {each['description']}" for status, each in RESPONSES.items())
    parts = [f"{_INTRO} {statuses}."]
    for path, methods in document["paths"].items():
        parts += ["\n\n".join(_route(method, path, methods[method])) for method in _METHODS if method in methods]
    parts.append("## Forms")
    parts += ["\n\n".join(_form(name, form)) for name, form in sorted(document["components"]["schemas"].items())]
    return "\n\n".join(parts) + "\n"


def _route(method: str, path: str, route: Mapping[str, Any]) -> Iterator[str]:
    yield f"## `{method.upper()} {path}`"
    yield str(route.get("description", route.get("summary", "")))
    if parameters := route.get("parameters"):
        rows = [(each["name"], each["in"], each["schema"], each.get("description", "")) for each in parameters]
        table = ["| parameter | in | type | meaning |", "|---|---|---|---|"]
        table += [f"| `{name}` | {where} | {_type(schema)} | {_cell(text)} |" for name, where, schema, text in rows]
        yield "\n".join(table)
    if body := route.get("requestBody"):
        kinds = ", ".join(
            f"{_type(content['schema'])} (`{kind}`)" if content.get("schema") else f"`{kind}`"
            for kind, content in body["content"].items()
        )
        yield f"Body: {kinds}."
    for status, answer in route["responses"].items():
        if int(status) < 400:  # noqa: PLR2004 - where errors begin
            kinds = " or ".join(
                f"{_type(content['schema'])}" + ("" if kind == "application/json" else f" (`{kind}`)")
                for kind, content in answer.get("content", {}).items()
                if content.get("schema") is not None
            )
            yield f"Answer {status}: {kinds or 'nothing'}."


def _form(name: str, form: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {_title(name)}"
    if form.get("description"):
        yield str(form["description"])
    if fields := form.get("properties"):
        needed = form.get("required", [])
        table = ["| field | type | meaning |", "|---|---|---|"]
        for field, value in fields.items():
            kind = _type(value) if field in needed else f"{_type(value)}, optional"
            table.append(f"| `{field}` | {kind} | {_cell(value.get('description', ''))} |")
        yield "\n".join(table)
    elif "enum" in form:
        yield _type(form)


def _type(value: Mapping[str, Any]) -> str:
    """The type of a value in a few words."""
    if "anyOf" in value:
        return " or ".join(_type(each) for each in value["anyOf"])
    if "$ref" in value:
        name = _title(value["$ref"].rpartition("/")[2])
        return f"[{name}](#{name.lower().replace(' ', '-')})"
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    if value.get("type") == "array":
        return f"list of {_type(value.get('items', {}))}"
    plain: str = value.get("type", "any")
    return {"date-time": "time", "uuid": "UUID", "binary": "octets"}.get(value.get("format", ""), plain)


def _title(name: str) -> str:
    """Page_Recipient_ as Page of Recipient."""
    return " of ".join(name.strip("_").split("_"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
