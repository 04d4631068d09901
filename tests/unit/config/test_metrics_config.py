"""test_metrics_config — valid addresses of metrics, and the address of each worker"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from queued.metrics import _address
from shared.config.metrics import ListenAddress, Metrics
from shared.config.queued.settings import QueuedConfig


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("localhost:0", ("localhost", 0)),
        ("mx1.example.com:65535", ("mx1.example.com", 65535)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_a_listen_address_is_parsed(written: str, address: tuple[str, int]) -> None:
    listen = Metrics.model_validate({"listen": written}).listen
    assert listen == ListenAddress(*address)
    assert str(listen) == written


@pytest.mark.parametrize(
    "written", ["", "9464", 9464, ":9464", "localhost", "localhost:", "::1:9464", "h:65536", "h:-1"]
)
def test_an_invalid_listen_address_is_refused(written: object) -> None:
    with pytest.raises(ValidationError, match="allowed: HOST:PORT such as"):
        Metrics.model_validate({"listen": written})


def test_metrics_are_off_by_default() -> None:
    assert QueuedConfig().metrics.listen is None


@pytest.mark.parametrize(("worker", "port"), [("queued-123", 9464), ("queued-456", 9465), ("queued", 9464)])
def test_workers_of_one_file_listen_side_by_side(worker: str, port: int) -> None:
    config = QueuedConfig.model_validate({"metrics": {"listen": "127.0.0.1:9464"}})
    assert _address(config, worker) == ("127.0.0.1", port)


def test_port_0_stays_0_for_every_worker() -> None:
    config = QueuedConfig.model_validate({"metrics": {"listen": "127.0.0.1:0"}})
    assert _address(config, "queued-456").port == 0
