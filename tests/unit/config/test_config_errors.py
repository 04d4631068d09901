"""test_config_errors — every mistake in our YAML is one line with the remedy

Owns: examples of refused settings on real files; messages name the place and the remedy, and show no secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """Writes one of the two files and returns the problems found in it, one for each line."""

    path: Path

    def problems(self, text: str, *, queued: bool = False) -> list[str]:
        file = self.path / ("queued.yaml" if queued else "smtpd.yaml")
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError) as refused:
            (load_queued if queued else load_smtpd)(file, {})
        assert refused.value.__cause__ is None
        return str(refused.value).replace(f"{self.path}/", "").split("\n")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_an_unknown_key_is_reported_with_the_allowed_keys_and_a_suggestion(folder: Folder) -> None:
    assert folder.problems("environment:\n  database:\n    wher: x\n", queued=True) == [
        'queued.yaml:3: environment.database.wher: unknown key (value "x"); allowed: uri, where; did you mean where?'
    ]


def test_an_invalid_size_is_reported_with_the_allowed_units(folder: Folder) -> None:
    text = "servers:\n  - phases:\n      data:\n        maxsize: 12 parsecs\n"
    assert folder.problems(text) == [
        (
            'smtpd.yaml:4: servers[0].phases.data.maxsize: "12 parsecs" is not a size; allowed: a whole number with '
            "B, KiB, MiB, GiB or TiB, or whole bytes, below 8388608TiB"
        )
    ]


def test_all_problems_are_reported_in_the_order_of_the_file(folder: Folder) -> None:
    text = """\
servers:
  - id: a
    listeners: [{port: 70000}]
    timeout: {idle: 5 minutes}
  - id: a b
spool:
  nonsense: 1
relay:
  networks: [10.0.0.1/8, here]
"""
    assert [problem.split(": ")[:2] for problem in folder.problems(text)] == [
        ["smtpd.yaml:3", "servers[0].listeners[0].port"],
        ["smtpd.yaml:4", "servers[0].timeout.idle"],
        ["smtpd.yaml:5", "servers[1].id"],
        ["smtpd.yaml:7", "spool.nonsense"],
        ["smtpd.yaml:9", "relay.networks[0]"],
        ["smtpd.yaml:9", "relay.networks[1]"],
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("servers: []", "servers: the list is empty; allowed: at least one entry"),
        ("servers: x", 'servers: "x" is not a list; allowed: entries that begin with a hyphen'),
        ("servers: [x]", 'servers[0]: "x" is not a section; allowed: the keys id, hostname, listeners, tls'),
        ("servers: [{listeners: []}]", "servers[0].listeners: the list is empty"),
        ("servers: [{listeners: [{port: '25'}]}]", 'servers[0].listeners[0].port: "25" is not a usable number; '),
        ("servers: [{listeners: [{port: true}]}]", "servers[0].listeners[0].port: true is not a usable number; "),
        ("servers: [{listeners: [{port: 25.0}]}]", "servers[0].listeners[0].port: 25.0 is not a usable number; "),
        (
            "servers: [{phases: {data: {dropheaders: ['Bcc:']}}}]",
            'servers[0].phases.data.dropheaders[0]: "Bcc:" is not a valid field name; allowed: 1 to 70 printable',
        ),
        (
            "servers: [{phases: {data: {dropheaders: [Received]}}}]",
            'servers[0].phases.data.dropheaders[0]: "Received" cannot be removed, because it shows mail loops; allowed',
        ),
        ("servers: [{listeners: [{backlog: 0}]}]", "servers[0].listeners[0].backlog: 0 is not a usable number; "),
        ("servers: [{listeners: [{address: 1.2.3.999}]}]", 'servers[0].listeners[0].address: "1.2.3.999" is not'),
        ("servers: [{id: 5}]", "servers[0].id: 5 is not usable here; allowed: 1 to 64 letters, digits, dots"),
        ("servers: [{id: a}, {id: b}, {id: a}]", 'servers[2].id: "a" is already taken by [0]; allowed: each id'),
        ('servers: [{hostname: "a\\r\\nb"}]', 'servers[0].hostname: "a\\r\\nb" is not usable here; allowed: a'),
        ("servers: [{tls: {certificate: a}}]", "servers[0].tls.privatekey: is missing; allowed: The private key"),
        ("servers: [{tls: {certificate: 1, privatekey: a}}]", "servers[0].tls.certificate: 1 is not a path; "),
        ("servers: [{phases: {data: {maxsize: 0}}}]", "servers[0].phases.data.maxsize: 0 is out of range; allowed"),
        ("servers: [{phases: {data: {maxsize: 1GiB}}}]", 'servers[0].phases.data.maxsize: "1GiB" is out of range; '),
        (
            "servers: [{phases: {data: {maxsize: 2MiB}}}]\nmemory: {bodies: 1MiB}",
            "servers[0].phases.data.maxsize: 2MiB is more than memory.bodies; allowed: at most 1MiB",
        ),
        ("memory: {bodies: 0}", "memory.bodies: 0 is out of range; allowed"),
        ("servers: [{limits: {line: 100}}]", "servers[0].limits.line: 100 is not a usable number; allowed: a whole"),
        ("servers: [{limits: {harderrors: 0}}]", "servers[0].limits.harderrors: 0 is not a usable number; allowed"),
        ("servers: [{phases: {connect: {earlytalker: drop}}}]", "servers[0].phases.connect.earlytalker: "),
        ("servers: [{phases: {mailfrom: {maxhold: 0}}}]", "servers[0].phases.mailfrom.maxhold: 0 is too short; "),
        ("servers: [{listeners: [{proxy: {networks: [x]}}]}]", "servers[0].listeners[0].proxy.networks[0]: "),
        ("servers: [{listeners: [{xclient: {hosts: []}}]}]", "servers[0].listeners[0].xclient.hosts: unknown key"),
        ("servers: [{phases: {data: {barenewline: maybe}}}]", "servers[0].phases.data.barenewline: "),
        ("servers: [{timeout: {idle: 0}}]", "servers[0].timeout.idle: 0 is too short; allowed: a duration above"),
        ("servers: [{timeout: {idle: -5s}}]", 'servers[0].timeout.idle: "-5s" is not a duration; allowed: '),
        ("servers: [{timeout: }]", "servers[0].timeout: an empty value is not a section; allowed: the keys idle"),
        ("environment:", "environment: an empty value is not a section; allowed: the keys database, var, log"),
        ("environment: {var: ''}", 'environment.var: "" is not a path; allowed: text naming a file or folder'),
        ("environment: {log: {level: verbose}}", "environment.log.level: "),
        ("environment: {database: {uri: 5}}", "environment.database.uri: 5 is not usable here; allowed: text"),
        ("relay: {networks: {}}", "relay.networks: a mapping is not a list"),
        ("relay: {networks: [10.0.0.1/8]}", 'relay.networks[0]: "10.0.0.1/8" is not a network, its address has'),
        ("relay: {networks: [5]}", "relay.networks[0]: 5 is not a network; allowed: text such as"),
        ("authentication: {users: [a]}", "authentication.users: a list is not a mapping"),
        ("spool: {synchronous_commit: true}", "spool.synchronous_commit: true is not usable here; allowed: on, "),
    ],
)
def test_mistakes_in_smtpd_yaml_are_reported(folder: Folder, text: str, problem: str) -> None:
    (found,) = folder.problems(text)
    assert found.startswith(f"smtpd.yaml:1: {problem}")
    assert "allowed: " in found
    assert found.isprintable()


@pytest.mark.parametrize(
    ("leaves", "problem"),
    [
        ("{def: ['1']}", '.def: "def" is not usable here; allowed: 1 to 32 of a-z, 0-9 and underscore, other'),
        ("{A: ['1']}", '.A: "A" is not usable here'),
        ("{a-b: ['1']}", '.a-b: "a-b" is not usable here'),
        (f"{{{'a' * 33}: ['1']}}", f'.{"a" * 33}: "{"a" * 33}" is not usable here'),
        ("{a: []}", ".a: the list is empty"),
        (
            "{a: [1]}",
            ".a[0]: 1 is not usable here; allowed: 1 to 64 letters, digits, dots, ",
        ),
        ("{a: ['1'], b: ['2', '1']}", '.b[1]: "1" is already in leaf a; allowed: each id in one leaf'),
        ("{a: ['1', '1']}", '.a[1]: "1" is already in leaf a'),
    ],
)
def test_mistakes_in_leaves_are_reported(folder: Folder, leaves: str, problem: str) -> None:
    (found,) = folder.problems(f"environment:\n  database:\n    partitions:\n      leaves: {leaves}\n")
    assert found.startswith(f"smtpd.yaml:4: environment.database.partitions.leaves{problem}")


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("{then: {hold: a}}", ".id: is missing; allowed: The name of the rule"),
        ("{id: a}", ".then: is missing; allowed: The actions. Section"),
        ("{id: a, then: {}}", ".then: the rule does nothing; allowed: at least one of accept, reject"),
        ("{id: a, then: {metadata: {}}}", ".then: the rule does nothing"),
        ("{id: a, then: {metadata: {_partid: b}}}", '.then.metadata._partid: "_partid" is not usable here; allowed'),
        ("{id: a, then: {metadata: {b: 1}}}", ".then.metadata.b: 1 is not usable here; allowed: one line of 1 to 500"),
        ("{id: a, then: {hold: ''}}", '.then.hold: "" is not usable here'),
        ("{id: a, then: {hold: a}, condition: {}}", ".condition: unknown key (value a mapping); allowed: id, phase"),
        ("{id: a, if: {user: []}, then: {hold: a}}", ".if.user: the list is empty; allowed: at least one entry"),
        ("{id: a, if: {client: [x]}, then: {hold: a}}", '.if.client[0]: "x" is not a network'),
        ("{id: a, if: {sender: [x]}, then: {hold: a}}", '.if.sender[0]: "x" is not a sender; allowed: an address'),
        ("{id: a, if: {recipient: ['']}, then: {hold: a}}", '.if.recipient[0]: "" is not usable here; allowed: an'),
        ("{id: a, if: {recipientdomain: ['*.']}, then: {hold: a}}", '.if.recipientdomain[0]: "*." is not usable'),
        ("{id: a, if: {senderdomain: ['a@b']}, then: {hold: a}}", '.if.senderdomain[0]: "a@b" is not usable here'),
    ],
)
def test_mistakes_in_rules_are_reported(folder: Folder, rule: str, problem: str) -> None:
    (found,) = folder.problems(f"policy:\n  rules:\n    - {rule}\n")
    assert found.startswith(f"smtpd.yaml:3: policy.rules[0]{problem}")


def test_rules_with_the_same_id_are_refused(folder: Folder) -> None:
    text = "policy:\n  rules:\n    - {id: a, then: {hold: a}}\n    - {id: a, then: {hold: b}}\n"
    (found,) = folder.problems(text)
    assert found.startswith('smtpd.yaml:4: policy.rules[1].id: "a" is already taken by [0]')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("workers: []", "workers: the list is empty"),
        ("workers: [{id: A, where: x}]", 'workers[0].id: "A" is not usable here; allowed: 1 to 64 of a-z'),
        ("workers: [{id: a}]", "workers[0].where: is missing; allowed: The SQL condition"),
        ("workers: [{id: a, where: x}, {id: a, where: y}]", 'workers[1].id: "a" is already taken by [0]'),
        ("environment: {database: {where: true}}", "environment.database.where: true is not usable here; allowed: "),
        ("environment: {database: {partitions: {}}}", "environment.database.partitions: unknown key"),
        ("claim: {batch: 10001}", "claim.batch: 10001 is not a usable number; allowed: a whole number from 1 to 10000"),
        ("claim: {poll: 0s}", 'claim.poll: "0s" is too short'),
        ("claim: {maxbytes: -1}", "claim.maxbytes: -1 is not a size"),
        ("transports: []", "transports: the list is empty"),
        ("transports: [{}, {}]", 'transports[1].id: "default" is already taken by [0]'),
        ("transports: [{connection: {port: 0}}]", "transports[0].connection.port: 0 is not a usable number"),
        ("transports: [{connection: {server: 'a b'}}]", 'transports[0].connection.server: "a b" is not a host'),
        ("transports: [{retry: {intervals: []}}]", "transports[0].retry.intervals: the list is empty"),
        ("transports: [{retry: {intervals: [1m, 0]}}]", "transports[0].retry.intervals[1]: 0 is too short"),
        (
            "transports: [{retry: {jitter: 1.1}}]",
            "transports[0].retry.jitter: 1.1 is not a fraction; allowed: a",
        ),
        ("transports: [{retry: {jitter: .nan}}]", 'transports[0].retry.jitter: ".nan" is not a fraction'),
        ("transports: [{retry: {jitter: true}}]", "transports[0].retry.jitter: true is not a fraction"),
        (
            "transports: [{timeout: {dott: 1m}}]",
            'transports[0].timeout.dott: unknown key (value "1m"); allowed: ',
        ),
    ],
)
def test_mistakes_in_queued_yaml_are_reported(folder: Folder, text: str, problem: str) -> None:
    (found,) = folder.problems(text, queued=True)
    assert found.startswith(f"queued.yaml:1: {problem}")
    assert "allowed: " in found


def test_a_missing_key_is_reported_at_its_section(folder: Folder) -> None:
    text = "servers:\n  - id: a\n    tls:\n      # none yet\n      certificate: a\n"
    (found,) = folder.problems(text)
    assert found.startswith("smtpd.yaml:3: servers[0].tls.privatekey: is missing")


@pytest.mark.parametrize(
    "text",
    [
        "authentication: {users: {bob: hunter2}}",
        "authentication: {users: {bob: 'x$argon2id$hunter2'}}",
        "authentication: {users: bob hunter2}",
        "authentication: {user: hunter2}",
        "authentification: 'postgresql://bob:hunter2@db/queue'",
        "environment: {database: {urii: 'postgresql://bob:hunter2@db/queue'}}",
        "environment: {database: {urii: 'postgresql://bob:x/y hunter2@db/queue'}}",
        "environment: {database: {urii: \"host=db password='a b hunter2' user=bob\"}}",
        "environment: {database: {urii: 'postgresql://db/queue?password=hunter2'}}",
        "environment: {database: {password: hunter2}}",
        "environment: {log: {level: $argon2id$hunter2}}",
        "environment: 'postgresql://bob:hunter2@db/queue'",
        "spool: {timeout: 'postgresql://bob:hunter2@db/queue'}",
    ],
)
def test_error_messages_show_no_secret(folder: Folder, text: str) -> None:
    (found,) = folder.problems(text)
    assert "hunter2" not in found
    assert "allowed: " in found


def test_long_and_unprintable_values_are_shortened_and_escaped(folder: Folder) -> None:
    (found,) = folder.problems('spool: {timeout: "' + "x" * 5000 + '"}')
    assert len(found) < 300
    (found,) = folder.problems('spool: {timeout: "a\\nb\\u202e\\x1b[31m"}')
    assert found.startswith('smtpd.yaml:1: spool.timeout: "a\\nb\\u202e\\u001b[31m" is not a duration')


def test_keys_with_special_characters_are_quoted_in_paths(folder: Folder) -> None:
    (found,) = folder.problems('authentication: {users: {"bob@example.com": x}}')
    assert found.startswith('smtpd.yaml:1: authentication.users["bob@example.com"]: ')


def test_an_empty_user_name_is_refused(folder: Folder) -> None:
    (found,) = folder.problems('authentication: {users: {"": $argon2id$x}}')
    assert found.startswith('smtpd.yaml:1: authentication.users[""]: "" is not usable here; allowed: text that is')
