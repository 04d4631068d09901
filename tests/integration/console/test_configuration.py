"""test_configuration — operators see in the console what the files say, with the lines, and no secret

Owns: proofs about httpd/console/configuration.py and operate/configuration.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from operate.configuration import read
from shared.errors import ConfigError
from tests.fixtures.daemons.console import signed_in

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api

_CONFIG = Path(__file__).parents[3] / "config"
_QUEUED = """\
environment:
  database:
    uri: postgresql://queued:hunter2@db.example/mail
transports:
  - id: relay
    connection:
      server: mx.example.com
      auth: {user: shop, password: {environment: RELAY_SECRET}}
"""


@pytest.mark.parametrize("kind", ["smtpd", "queued", "httpd", "collect"])
def test_every_key_of_the_shipped_files_has_its_line_and_its_meaning(kind: str) -> None:
    path = _CONFIG / f"{kind}.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()
    found = read(path, kind)
    assert found.given
    for each in found.given:
        name = each.path.rpartition(".")[2].partition("[")[0]
        assert name in lines[each.line - 1] or lines[each.line - 1].lstrip().startswith(("-", "#")), each
    assert not {key for key, _ in found.left} & {each.path for each in found.given}


def test_passwords_are_masked_and_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    path = tmp_path / "queued.yaml"
    path.write_text(_QUEUED)
    found = read(path, "queued")
    said = {each.path: (each.value, each.line) for each in found.given}
    assert said["environment.database.uri"] == ("postgresql://queued:***@db.example/mail", 3)
    assert said["transports[0].id"] == ("relay", 5)
    assert said["transports[0].connection.auth.password.environment"] == ("RELAY_SECRET", 8)
    assert "hunter2" not in str(found)
    assert "default" in dict(found.left)["environment.var"]
    path.write_text(_QUEUED + "wrong: 1\n")
    with pytest.raises(ConfigError, match="wrong"):
        read(path, "queued")


async def test_operators_see_the_files_beside_httpd_and_what_is_wrong_with_one(api: Api) -> None:
    folder = api.system.folder
    (folder / "queued.yaml").write_text(_QUEUED)
    client = await signed_in(api, "olga", "operator")
    shown = (await client.get("/console/configuration")).text
    assert "postgresql://queued:***@db.example/mail" in shown
    assert "transports[0].id" in shown
    (folder / "queued.yaml").write_text(_QUEUED + "wrong: <b>\n")
    wrong = (await client.get("/console/configuration")).text
    assert "wrong" in wrong
    assert "hunter2" not in shown + wrong
