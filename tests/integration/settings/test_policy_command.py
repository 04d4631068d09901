"""test_policy_command — `pillarbox policy test` uses the lists and users of a real database

Owns: proofs about scripts/policy/command.py that need PostgreSQL or rspamd.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from scripts.cli import main
from tests.fixtures.peers.rspamd import GTUBE

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.fixtures.database.factory import Factory

ENVELOPE = ["--client", "127.0.0.1", "--from", "a@b.example", "--to", "x@y.example", "--json"]


def asked(folder: Path, policy: dict[str, Any], uri: str, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    config = {"environment": {"database": {"uri": uri}}, "policy": policy}
    (folder / "smtpd.yaml").write_text(json.dumps(config))
    status = main(["policy", "test", "--config", str(folder), *ENVELOPE, *more])
    answer = json.loads(capsys.readouterr().out)
    assert status == (0 if answer["accepted"] else 1)
    return answer


def test_a_list_behind_a_query_is_asked_and_nothing_is_written(
    factory: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    factory.sql("CREATE TABLE closed (name text)")
    factory.sql("INSERT INTO closed VALUES ('y.example')")
    policy = {
        "lists": [{"id": "closed", "query": "SELECT 1 FROM closed WHERE name = %(value)s"}],
        "rules": [
            {
                "id": "closed",
                "if": {"in": {"list": "closed", "of": "recipientdomain"}},
                "then": {"reject": "550 5.7.1 Closed"},
            }
        ],
    }
    answer = asked(tmp_path, policy, factory.uri, capsys)
    assert answer["rejected"] == {"x@y.example": "550 5.7.1 Closed"}
    factory.sql("TRUNCATE closed")
    assert asked(tmp_path, policy, factory.uri, capsys)["accepted"]
    assert factory.queue() == []
    assert factory.bodies() == {}


def test_without_a_database_the_trial_defers_like_smtpd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = {
        "lists": [{"id": "a", "query": "SELECT 1 WHERE %(value)s = ''", "timeout": "2s"}],
        "rules": [{"id": "a", "if": {"in": {"list": "a", "of": "client"}}, "then": {"hold": "x"}}],
    }
    answer = asked(tmp_path, policy, "postgresql://127.0.0.1:1/none", capsys)
    assert answer["rejected"]["x@y.example"].startswith("451 4.3.0")


async def test_rspamd_is_asked_only_with_its_option(
    rspamd: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = tmp_path / "mail"
    mail.write_bytes(b"From: a@b.example\nSubject: x\n\n" + GTUBE + b"\n")
    policy = {"contentcheck": {"url": rspamd}}
    unchecked = await asyncio.to_thread(asked, tmp_path, policy, "embedded:", capsys, "--message", str(mail))
    assert unchecked["accepted"]
    assert unchecked["notes"] == ["content is taken as unchecked: give --message and --check to ask rspamd"]
    checked = await asyncio.to_thread(asked, tmp_path, policy, "embedded:", capsys, "--message", str(mail), "--check")
    assert checked["refused"] == "554 5.7.1 Message refused for its content"
