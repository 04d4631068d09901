"""test_variables — each place that names an environment variable takes its value from NAME_FILE too"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from queued.webhooks.signature import SecretRefused, key_of
from shared import secret_files, variables
from shared.config.queued.login import Secret

if TYPE_CHECKING:
    from pathlib import Path

_KEY = bytes(range(24))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that everybody may read, as a container's secrets are."""
    file = tmp_path / "secret"
    file.write_text("word\r\n", encoding="ascii")
    file.chmod(0o444)
    return file


def test_the_variable_itself_comes_first(file: Path) -> None:
    both = {"NAME": "", "NAME_FILE": str(file)}
    assert variables.read(both, "NAME") == ""
    assert variables.read({"NAME_FILE": str(file)}, "NAME") == "word"
    assert variables.read({"NAME_FILE": ""}, "NAME") is None
    assert variables.read({}, "NAME") is None


def test_a_password_is_read_from_the_file_of_its_variable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Secret(environment="RELAY_PASSWORD")
    monkeypatch.setenv("RELAY_PASSWORD_FILE", str(file))
    assert secret_files.read(place) == "word"
    monkeypatch.setenv("RELAY_PASSWORD_FILE", f"{file}.gone")
    with pytest.raises(secret_files.UnusableSecret, match=r"^RELAY_PASSWORD_FILE names .*No such file or directory$"):
        secret_files.read(place)


def test_a_webhook_s_secret_is_read_from_the_file_of_its_variable(file: Path) -> None:
    file.chmod(0o600)
    file.write_text(f"whsec_{base64.b64encode(_KEY).decode()}\n", encoding="ascii")
    assert key_of("env:HOOK", {"HOOK_FILE": str(file)}) == _KEY
    with pytest.raises(SecretRefused, match=r"^env:HOOK: HOOK_FILE names .*cannot be read: Is a directory$"):
        key_of("env:HOOK", {"HOOK_FILE": str(file.parent)})
