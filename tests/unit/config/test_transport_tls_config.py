"""test_transport_tls_config — valid settings of a transport's TLS, and the errors for others"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shared.config.queued.load import load_queued
from shared.config.queued.transport_tls import TransportTls
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def refusal(tmp_path: Path, **tls: Any) -> str:
    """The error for a queued.yaml whose first transport has these settings."""
    lines = "".join(f"      {key}: {value}\n" for key, value in tls.items())
    file = tmp_path / "queued.yaml"
    file.write_text(f"transports:\n  - id: default\n    tls:\n{lines}")
    with pytest.raises(ConfigError) as caught:
        load_queued(file, {})
    return str(caught.value).removeprefix(f"{file}:")


@pytest.mark.parametrize(
    ("tls", "error"),
    [
        ({"mode": "verify"}, "transports[0].tls.mode: "),
        ({"minimum": "TLSv1.1"}, "transports[0].tls.minimum: "),
        ({"names": "[]"}, "transports[0].tls.names: "),
        ({"names": "['*.example.com']"}, "allowed: a host name, or .example.com"),
        ({"implicit": "1"}, "allowed: true or false"),
        ({"certificate": "a.pem"}, "allowed: both, or neither"),
        ({"mode": "disabled", "implicit": "true"}, "allowed: another mode, or implicit: false"),
        ({"mta-sts": "true"}, "mta-sts"),
    ],
)
def test_an_invalid_setting_is_reported_in_one_line(tls: dict[str, str], error: str, tmp_path: Path) -> None:
    line = refusal(tmp_path, **tls)
    assert error in line
    assert "\n" not in line


def test_tls_is_opportunistic_by_default() -> None:
    assert (TransportTls().mode, TransportTls().mtasts, TransportTls().implicit) == ("optional", True, False)
