"""test_yaml_edit — one value changes, and every other line of the file stays as it is"""

from __future__ import annotations

import pytest

from shared.config.yaml_edit import set_value
from shared.errors import ConfigError

FILE = """\
# Ours.
transports:
  - id: default   # the first
    connection:
      server: 127.0.0.1  # here
      auth:
        user: a
        password: {file: x}

      # port: 25
  - {id: bulk, connection: {server: b.example}}
"""


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (("default", "connection", "server"), "server: 127.0.0.1  # here", "server: v  # here"),
        (
            ("default", "connection", "auth"),
            "auth:\n        user: a\n        password: {file: x}\n",
            "auth:\n        v\n",
        ),
        (("default", "connection", "port"), "      # port: 25\n", "      port: v\n      # port: 25\n"),
        (("default", "connection", "socket"), "password: {file: x}\n", "password: {file: x}\n      socket: v\n"),
        (("default", "tls", "implicit"), "file: x}\n", "file: x}\n    tls: {implicit: v}\n"),
        (("bulk", "connection", "server"), "b.example", "v"),
        (("bulk", "connection", "port"), "b.example}", "b.example, port: v}"),
        (("bulk", "tls", "implicit"), "b.example}}", "b.example}, tls: {implicit: v}}"),
    ],
)
def test_only_the_value_changes(path: tuple[str, ...], old: str, new: str) -> None:
    assert FILE.count(old) == 1
    assert set_value(FILE, ("transports", *path), "v") == FILE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", "{a: {b: v}}\n"),
        ("# only this\n", "# only this\n{a: {b: v}}\n"),
        ("a:\n", "a: {b: v}\n"),
        ("a: {}", "a: {b: v}"),
    ],
)
def test_a_missing_key_is_added(text: str, changed: str) -> None:
    assert set_value(text, ("a", "b"), "v") == changed


@pytest.mark.parametrize(
    ("text", "says"),
    [("a: [", "not YAML"), ("a: 1", 'a: key "b" is missing'), ("a: [{id: c}]", 'a: key "b" is missing')],
)
def test_a_path_that_cannot_be_set_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        set_value(text, ("a", "b"), "v")
