"""test_config_refusals — any configuration is valid, or its problems are one-line errors

Owns: the law that no value at any key ends in anything but a model or a ConfigError fit for a terminal.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.config.httpd.load import load_httpd
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from shared.config.yaml_source import load_yaml
from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = Path(__file__).parents[3] / "config"
LOADERS = {"smtpd.yaml": load_smtpd, "queued.yaml": load_queued, "httpd.yaml": load_httpd}
RULE: dict[str, Any] = {
    "id": "a",
    "phase": "eod",
    "servers": ["default"],
    "if": {
        "client": ["::/0"],
        "sender": [""],
        "recipientdomain": ["*.example.com"],
        "header": {"Subject": ["*a*", "/b+/"]},
        "score": ">5",
        "size": ">1MiB",
        "time": [{"days": ["mon"], "hours": "22:00-06:00", "zone": "UTC"}],
        "rate": {"key": ["user"], "over": "10/1h"},
        "in": {"list": "a", "of": "user"},
        "not": {"tls": True, "any": [{"recipients": ">=3"}, {"symbols": ["A*"]}]},
    },
    "then": {"hold": "a", "metadata": {"b": "{user}"}, "partition": "1", "transport": "default", "delay": "1s"},
}
MARK: dict[str, Any] = {"id": "m", "phase": "eod", "then": {"addheader": {"X-A": "{score}"}}}
POLICY: dict[str, Any] = {
    "partitionkey": "header:X-Tenant",
    "lists": [{"id": "a", "query": "SELECT 1 WHERE %(value)s = ''", "keep": "1m"}],
    "contentcheck": {"url": "http://127.0.0.1:11333", "whendown": "hold", "actions": {"reject": "hold"}},
    "holds": [{"id": "h", "if": {"user": ["b"]}, "hold": "q", "holdreason": "{user}"}],
    "rules": [RULE, MARK],
}
#: Mappings whose keys the operator chooses.
OPEN = {"metadata", "users", "leaves", "header", "addheader", "destinations"}
TLS = {"certificate": "c.pem", "privatekey": "k.pem"}
LINE = re.compile(r"x\.yaml:[0-9]+: [^ :]+.*: .*allowed: .+")


def shipped(file: str) -> dict[str, Any]:
    """The values of a shipped file, and of the keys that it has as examples only."""
    values: dict[str, Any] = load_yaml(CONFIG / file, {}).values
    if file == "smtpd.yaml":
        values["policy"] = POLICY
        values["authentication"]["users"] = {"bob": "$argon2id$x"}
        values["servers"][0] |= {"tls": TLS, "hostname": "a.example"}
    return values


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key path in `value`, and beside each mapping one that is unknown."""
    if path:
        yield path
    if isinstance(value, dict):
        yield (*path, "unknown")
        for key, below in value.items():
            yield from places(below, (*path, key))
    if isinstance(value, list):
        for index, below in enumerate(value):
            yield from places(below, (*path, index))


def replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """`value` with `new` at `path`."""
    if not path:
        return new
    first, *rest = path
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[first] = replaced(value[first], tuple(rest), new) if rest else new
    return copy


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", exclude_categories=["Cc"]))
    | st.sampled_from(["id", "5m", "16MiB", "-1s", "127.0.0.1", "a@b", "*.x", "$argon2", "true", "", "x" * 300]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "if", "_a", ""]), inner),
    max_leaves=6,
)


@pytest.mark.parametrize("file", LOADERS)
def test_any_value_at_any_key_is_valid_or_refused_in_lines(file: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    values = shipped(file)
    target = tmp_path_factory.mktemp("config") / "x.yaml"

    @settings(deadline=None)  # the disk is slow here
    @given(st.sampled_from(list(places(values))), VALUES)
    def check(path: tuple[str | int, ...], value: object) -> None:
        target.write_text(json.dumps(replaced(values, path, value)), encoding="utf-8")  # JSON is YAML
        try:
            LOADERS[file](target, {})
        except ConfigError as refused:
            lines = str(refused).replace(f"{target.parent}/", "").split("\n")
            assert all(LINE.fullmatch(line) and line.isprintable() for line in lines), lines
        else:
            assert path[-1] != "unknown" or path[-2] in OPEN

    check()
