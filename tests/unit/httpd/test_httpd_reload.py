"""test_httpd_reload — which changes of httpd.yaml a running httpd can use"""

from __future__ import annotations

from httpd.reload import FIXED, LIVE, effective
from shared.config.httpd.settings import HttpdConfig


def test_every_section_is_used_or_needs_a_restart() -> None:
    assert set(HttpdConfig.model_fields) == FIXED | LIVE
    assert not FIXED & LIVE


def test_what_cannot_change_stays_and_is_named() -> None:
    running = HttpdConfig()
    wanted = HttpdConfig.model_validate(
        {
            "listen": "127.0.0.1:1",
            "rates": {"requests": 5},
            "environment": {"var": "elsewhere", "log": {"level": "debug"}},
            "tls": {"certificate": "c.pem", "privatekey": "k.pem"},
        }
    )
    config, ignored = effective(running, wanted)
    assert ignored == ["listen", "environment.var", "tls"]
    assert (config.listen, config.tls, config.environment.var) == (running.listen, None, running.environment.var)
    assert (config.rates.requests, config.environment.log.level) == (5, "debug")
