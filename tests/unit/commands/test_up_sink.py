"""test_up_sink — when `pillarbox up --sink` runs a sink, what it keeps, and how its mail is listed

See: scripts/up/sink.py, scripts/sink/store.py, scripts/sink/show.py, shared/config/queued/next_hop.py.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from operate.doctor.checks import Severity
from operate.doctor.next_hop import next_hop
from scripts.commands import up
from scripts.sink import show
from scripts.sink.records import Received
from scripts.sink.store import Store
from scripts.up import sink
from shared.config.queued.next_hop import with_next_hop, without_next_hop
from shared.config.queued.routing import HostPort
from shared.config.queued.settings import QueuedConfig
from shared.config.smtpd.settings import SmtpdConfig
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.heard import Heard

ID = "01a208d8-8119-7290-b1f7-9c5f12cdfc46"


def queued(**connections: dict[str, Any]) -> QueuedConfig:
    transports = [{"id": name, "connection": connection} for name, connection in connections.items()]
    return QueuedConfig.model_validate({"transports": transports} if transports else {})


def smtpd(*listeners: dict[str, Any]) -> SmtpdConfig:
    return SmtpdConfig.model_validate({"servers": [{"listeners": list(listeners)}]})


def record(subject: str, size: int = 0) -> Received:
    content = (
        f"Received: from a (b [127.0.0.1])\r\n\tby c with ESMTP\r\n\tid {ID}; now\r\n"
        f"Subject: {subject}\r\nMessage-ID: <{subject}@example.com>\r\n\r\n{'x' * size}\r\n"
    ).encode()
    return Received(1.0, "me@example.com", ("you@example.org",), "", len(content), answered=True, content=content)


@pytest.mark.parametrize(
    "connection",
    [
        {"server": "127.0.0.1"},
        {"port": 2526},
        {"mode": "mx"},
        {"hosts": [{"server": "a.example"}]},
        {"protocol": "lmtp", "socket": "/run/lmtp", "port": 24},
    ],
)
def test_every_setting_of_a_destination_is_a_next_hop(connection: dict[str, Any]) -> None:
    assert without_next_hop(queued(default=connection)) == []


def test_the_defaults_name_no_next_hop_and_only_such_transports_get_the_sink() -> None:
    assert without_next_hop(queued()) == ["default"]
    config = queued(default={"addresses": 2}, bulk={"server": "bulk.example"})
    assert without_next_hop(config) == ["default"]
    default, bulk = with_next_hop(config, HostPort("127.0.0.1", 4711)).transports
    assert (default.connection.server, default.connection.port) == ("127.0.0.1", 4711)
    assert bulk == config.transports[1]


def test_doctor_stays_red_until_every_transport_names_a_next_hop() -> None:
    found = next_hop(queued(default={}, bulk={"server": "bulk.example"}))
    assert found.verdict is Severity.ALARM
    assert "no next hop is configured for transport default" in found.found
    assert next_hop(queued(default={"mode": "mx"})).verdict is Severity.OK


@pytest.mark.parametrize(
    ("listener", "loopback"),
    [
        ({"address": "127.0.0.1"}, True),
        ({"address": "127.9.9.9"}, True),
        ({"address": "::1"}, True),
        ({"address": "localhost"}, True),
        ({"address": "0.0.0.0"}, False),  # noqa: S104 - only read
        ({"address": "::"}, False),
        ({"address": "192.0.2.1"}, False),
        ({"address": "mx.example.com"}, False),
        ({"address": "127.0.0.1", "proxy": {"networks": ["127.0.0.1/32"]}}, False),
        ({"address": "127.0.0.1", "xclient": {"networks": ["127.0.0.1/32"]}}, False),
    ],
)
def test_a_sink_needs_listeners_that_accept_from_loopback_only(listener: dict[str, Any], *, loopback: bool) -> None:
    why = sink.from_elsewhere(smtpd({"address": "127.0.0.1"}, {**listener, "port": 2626}))
    assert (why is None) is loopback
    assert why is None or "servers[0].listeners[1] of smtpd.yaml accepts" in why


@pytest.mark.parametrize(
    ("host", "hostaddr", "here"),
    [
        ("/run/postgresql", "", True),
        ("localhost", "::1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("db.example", "192.0.2.7", False),
    ],
)
def test_a_database_is_local_by_socket_or_loopback_address(host: str, hostaddr: str, *, here: bool) -> None:
    connection: Any = SimpleNamespace(info=SimpleNamespace(host=host, hostaddr=hostaddr))
    assert database.is_on_this_host(connection) is here


def test_the_warning_names_where_mail_goes() -> None:
    assert "tried at 127.0.0.1; --sink" in sink.warning(["default"], asked=False, refused=None)
    assert "no sink is started, because so" in sink.warning(["default"], asked=True, refused="so")
    assert "mail goes to a sink" in sink.warning(["default"], asked=True, refused=None)


def test_the_store_keeps_the_newest_and_survives_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "sink", most=3, octets=10_000)
    for number in range(5):
        store.add(record(f"s{number}"))
    assert store.numbers() == [3, 4, 5]
    again = Store(tmp_path / "sink", most=3, octets=10_000)
    assert again.last == 5
    again.add(record("large", size=9_900))
    assert again.numbers() == [6], "more octets than allowed: only the newest stays"
    assert sorted(file.name for file in (tmp_path / "sink").iterdir()) == ["6.eml", "6.json"]
    assert (tmp_path / "sink").stat().st_mode & 0o077 == 0


def test_a_message_is_found_by_number_id_and_message_id(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(record("s0"))
    taken = show.found(store, "1")
    assert (taken.id, taken.subject, taken.recipients) == (ID, "s0", ("you@example.org",))
    assert (
        show.found(store, ID) == show.found(store, "<s0@example.com>") == show.found(store, "s0@example.com") == taken
    )
    with pytest.raises(PillarboxError, match='message "2" is not in'):
        show.found(store, "2")
    assert taken.as_json()["number"] == 1


def test_a_reload_beside_a_sink_opens_no_public_listener(
    tmp_path: Path, heard: Heard, capsys: pytest.CaptureFixture[str]
) -> None:
    reloads: list[bool] = []
    supervisor: Any = SimpleNamespace(children=[], reload=lambda: reloads.append(True))
    listener = {"address": "127.0.0.1", "proxy": {"networks": ["192.0.2.0/24"]}}
    (tmp_path / "smtpd.yaml").write_text(json.dumps({"servers": [{"listeners": [listener]}]}))
    (tmp_path / "queued.yaml").write_text("{}")
    up._reload(tmp_path, QueuedConfig(), supervisor, "127.0.0.1:4711")
    [refused] = heard.all("daemon.reload_refused")
    assert "mail goes to a sink, and servers[0].listeners[0] of smtpd.yaml accepts for other hosts" in refused["error"]
    assert reloads == []
    up._reload(tmp_path, QueuedConfig(), supervisor, None)
    assert reloads == [True]
    assert "WARNING: no next hop is configured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("listening 127.0.0.1:2525", "127.0.0.1:2525"),
        ("listening 0.0.0.0:25, [::]:25", "port 25 of this host, port 25 of this host"),
        ("listening 10.0.0.0:25", "10.0.0.0:25"),
    ],
)
def test_the_place_to_submit_to_is_one_that_a_client_can_use(said: str, place: str) -> None:
    assert up._place(said) == place
