"""test_setup — `pillarbox web setup` prints a one-time link, and says what is wrong in one line

Owns: proofs about scripts/access/web.py and the link of operate/sign_in.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.database.operating import Pillarbox, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

URL: Final = "https://mail.example.com"


@pytest.fixture
def web(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """The command, as the owner of the database runs it."""
    return Pillarbox(write_config(tmp_path / "config", database), capsys, "web")


def test_the_first_person_becomes_an_admin_and_the_link_is_kept_as_a_digest(web: Pillarbox, factory: Factory) -> None:
    first = json.loads(web.run("setup", "--url", f"{URL}/", "--json"))
    assert (web.status, first["principal"], first["made_admin"]) == (0, "admin", True)
    assert first["url"].startswith(f"{URL}/console/link?token=")
    [person] = factory.sql("SELECT name, kind, roles FROM pillarbox.principals")
    assert (person.name, person.kind, person.roles) == ("admin", "person", ["admin"])
    again = web.run("setup", "admin", "--url", URL, "--expires", "2h")
    assert again.splitlines()[-1].startswith(f"{URL}/console/link?token=")
    [link] = factory.sql("SELECT encode(digest, 'escape') AS digest, expires - made AS keep FROM pillarbox.web_links")
    assert link.keep.total_seconds() == 7200
    assert first["url"].partition("token=")[2] not in link.digest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("setup", "rita", "--url", URL), 'principal "rita" does not exist'),
        (("setup", "shop", "--url", URL), '"shop" is an application; allowed: a person'),
        (("setup", "gone", "--url", URL), '"gone" is disabled'),
        (("setup", "olga", "--url", "mail.example.com"), '--url: "mail.example.com" is not the address of httpd'),
        (("setup", "olga", "--url", "http://["), '--url: "http://[" is not the address of httpd'),
        (("setup", "olga", "--url", "http://a:99999"), '--url: "http://a:99999" is not the address of httpd'),
        (("setup", "olga"), "httpd.yaml is missing; give --url"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(web: Pillarbox, factory: Factory, words: tuple[str, ...], said: str) -> None:
    factory.sql(
        """INSERT INTO pillarbox.principals (name, kind, roles, disabled) VALUES ('olga', 'person', '{admin}', false),
           ('shop', 'application', '{sender}', false), ('gone', 'person', '{reviewer}', true)"""
    )
    web.run(*words)
    assert web.status != 0
    assert said in web.refused
    assert len(web.refused.splitlines()) == 1
    assert factory.sql("SELECT 1 FROM pillarbox.web_links") == []
