"""test_command — `pillarbox policy` shows smtpd's decision about an envelope, rule by rule, and changes nothing

Owns: proofs about scripts/policy/command.py and scripts/policy/trial.py without a database; tests/integration/
    test_policy_command.py has the lists of one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from scripts.cli import main

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """\
environment: {database: {uri: "embedded:"}, var: VAR}
servers: [{id: public}, {id: submission}]
relay: {networks: ["192.0.2.0/24"]}
authentication: {users: {alice: $argon2id$x}}
policy:
  lists: [{id: friends, file: FRIENDS}]
  holds: [{id: watched, if: {user: [mallory]}, hold: watch}]
  rules:
    - {id: banned, phase: connect, if: {client: ["192.0.2.66/32"]}, then: {reject: "554 5.7.1 Go away"}}
    - {id: tls, phase: mailfrom, servers: [submission], if: {tls: false}, then: {reject: "550 5.7.10 TLS first"}}
    - {id: big, phase: mailfrom, if: {size: ">1MiB"}, then: {defer: "452 4.3.4 Not now", delay: 5s}}
    - {id: friend, if: {in: {list: friends, of: recipientdomain}}, then: {accept: true, priority: 3}}
    - {id: closed, if: {recipientdomain: [closed.example]}, then: {reject: "550 5.7.1 Closed"}}
    - {id: rated, if: {rate: {key: [client], over: 1/1h}}, then: {reject: "550 5.7.1 Enough"}}
    - {id: lottery, phase: eod, if: {header: {Subject: ["*lottery*"]}}, then: {hold: luck}}
    - {id: mark, phase: eod, then: {addheader: {X-User: "{user}"}}}
"""
ENVELOPE = ["--client", "192.0.2.7", "--from", "a@b.example"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    friends = tmp_path / "friends"
    friends.write_text("friend.example\n")
    text = CONFIG.replace("VAR", str(tmp_path / "var")).replace("FRIENDS", str(friends))
    (tmp_path / "smtpd.yaml").write_text(text)
    return tmp_path


def asked(config: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    status = main(["policy", "test", "--config", str(config), *ENVELOPE, "--json", *more])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert not (config / "var").exists()  # nothing was started or written
    return status, answer


def rules(answer: dict[str, Any], phase: str) -> list[tuple[str, bool]]:
    return [(s["rule"], s["matched"]) for each in answer["phases"] if each["phase"] == phase for s in each["trail"]]


def test_an_accepted_envelope_exits_0_with_its_row_and_every_rule(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = asked(config, capsys, "--to", "x@friend.example", "--user", "alice")
    assert (status, answer["accepted"], answer["refused"]) == (0, True, None)
    [row] = answer["recipients"]
    assert (row["status"], row["transport"], row["priority"]) == ("DELIVER", "default", 3)
    assert row["metadata"] == {"_policyrule": "friend,mark"}
    assert answer["headers"] == ["X-User: alice"]
    assert rules(answer, "connect") == [("banned", False)]
    assert rules(answer, "mailfrom") == [("big", False)]
    assert rules(answer, "rcptto") == [("watched", False), ("friend", True)]
    assert rules(answer, "eod") == [("lottery", False), ("mark", True)]
    assert [each["phase"] for each in answer["phases"]] == ["connect", "helo", "auth", "mailfrom", "rcptto", "eod"]


@pytest.mark.parametrize(
    ("more", "refused", "phase"),
    [
        (["--client", "192.0.2.66", "--to", "x@y.example"], "554 5.7.1 Go away", "connect"),
        (["--size", "2MiB", "--to", "x@y.example"], "452 4.3.4 Not now", "mailfrom"),
        (["--listener", "submission", "--to", "x@y.example"], "550 5.7.10 TLS first", "mailfrom"),
    ],
)
def test_a_refused_message_exits_1_at_its_phase(
    more: list[str], refused: str, phase: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = asked(config, capsys, *more)
    assert (status, answer["refused"], answer["phases"][-1]["phase"]) == (1, refused, phase)
    assert answer["recipients"] == []


def test_tls_changes_the_answer(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(config, capsys, "--listener", "submission", "--to", "x@y.example", "--tls")[0] == 0


def test_one_refused_recipient_of_two_exits_1(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = asked(config, capsys, "--to", "x@closed.example", "--to", "x@y.example")
    assert (status, answer["refused"]) == (1, None)
    assert answer["rejected"] == {"x@closed.example": "550 5.7.1 Closed"}
    assert [row["recipient"] for row in answer["recipients"]] == ["x@y.example"]


def test_a_client_that_may_not_relay_is_refused_with_554(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = asked(config, capsys, "--client", "203.0.113.1", "--to", "x@friend.example")
    assert status == 1
    assert answer["rejected"]["x@friend.example"].startswith("554 5.7.1")
    assert asked(config, capsys, "--client", "203.0.113.1", "--user", "alice", "--to", "x@friend.example")[0] == 0


def test_a_message_is_judged_by_its_header_and_notes_name_omissions(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mail = config / "mail"
    mail.write_bytes(b"Subject: a LOTTERY\n\nbody\n")
    status, answer = asked(config, capsys, "--to", "x@y.example", "--message", str(mail), "--user", "mallory")
    assert status == 0
    assert answer["recipients"][0]["metadata"]["_quarantineid"] == "watch"
    assert rules(answer, "eod") == [("lottery", True), ("mark", True)]
    assert answer["notes"] == [
        "rates are taken as not over: nothing is counted here",
        "user mallory is not in this configuration: taken as a user without settings",
    ]
    assert "without --message no header field matches" in asked(config, capsys, "--to", "x@y.example")[1]["notes"]


def test_the_table_is_readable(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["policy", "test", "--config", str(config), *ENVELOPE, "--size", "2MiB", "--to", "x@y.example"]) == 1
    printed = capsys.readouterr().out
    assert "defer: 452 4.3.4 Not now; delay: 5s" in printed
    assert "refused: 452 4.3.4 Not now" in printed
    assert "delayed: 5 s in all" in printed


def test_check_counts_the_valid_rules(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", "--config", str(config)]) == 0
    assert capsys.readouterr().out.endswith("smtpd.yaml: can be used: 8 rules, 1 hold, 1 list\n")


def test_check_names_an_unreadable_list(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config / "friends").unlink()
    assert main(["policy", "check", "--config", str(config)]) == 78
    assert "policy.lists[0].file: " in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["check", "test"])
def test_a_mistake_is_one_line_with_file_and_line(verb: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config / "smtpd.yaml"
    file.write_text(file.read_text().replace("phase: eod, if", "phase: helo, if"))
    envelope = [*ENVELOPE, "--to", "x@y.example"] if verb == "test" else []
    assert main(["policy", verb, "--config", str(config), *envelope]) == 78
    said = capsys.readouterr().err
    assert said == (
        f"pillarbox: {file}:15: policy.rules[6].if.header: header is not known at helo; allowed: a rule at eod\n"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--listener", "nowhere", "--to", "x@y.example"], "allowed: public, submission"),
        (["--message", "/nowhere", "--to", "x@y.example"], "--message /nowhere: No such file"),
    ],
)
def test_invalid_options_are_one_line(
    more: list[str], said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "test", "--config", str(config), *ENVELOPE, *more]) != 0
    assert said in capsys.readouterr().err
