"""mailroom — the environment variables of mailroom's collector

Owns: their names, defaults and checks, for `pillarbox collect --csv`.
Guarantees: pure. A number that cannot be read is an error; mailroom would warn and use the default.
Raises: ConfigError naming the variable and what is allowed; it never quotes the key.
See: https://github.com/tetsuo/mailroom, collector/src/main.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shared.errors import ConfigError
from shared.masking import show
from shared.security.account_token import read_key
from shared.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY: Final = "MAILROOM_SECRET_KEY"
_URL: Final = "MAILROOM_DATABASE_URL"
_CHANNEL: Final = "MAILROOM_CHANNEL_NAME"
_QUEUE: Final = "MAILROOM_QUEUE_NAME"
_HEALTH_CHECK: Final = "MAILROOM_HEALTHCHECK_INTERVAL"
_TIMEOUT: Final = "MAILROOM_BATCH_TIMEOUT"
_LIMIT: Final = "MAILROOM_BATCH_LIMIT"
_MOST: Final = 2**31 - 1
_LONGEST_POLL: Final = 5.0  # seconds; mailroom does not poll


@dataclass(frozen=True, slots=True)
class Settings:
    """What the variables say; times in seconds."""

    conninfo: str
    key: bytes
    channel: str
    limit: int
    timeout: float
    health_check: float

    @property
    def poll(self) -> float:
        """Each look for tokens is a health check too, and comes more often than mailroom's."""
        return min(_LONGEST_POLL, self.health_check)


def read(environ: Mapping[str, str]) -> Settings:
    """The settings in these variables."""
    for name in (_URL, KEY):
        if not environ.get(name):
            raise ConfigError(f"the environment variable {name} is not set")
    if environ.get(_QUEUE, "mailroom") != "mailroom":
        raise ConfigError(f"{_QUEUE}: {show(environ[_QUEUE])} is unknown; allowed: mailroom")
    key = mailroom_key(environ[KEY])
    health_check, timeout = _number(environ, _HEALTH_CHECK, 270_000, 1), _number(environ, _TIMEOUT, 5_000, 0)
    if health_check < timeout:
        raise ConfigError(f"{_HEALTH_CHECK}: {health_check} is less than {_TIMEOUT}; allowed: {timeout} or more")
    return Settings(
        conninfo=environ[_URL],
        key=key,
        channel=environ.get(_CHANNEL, "token_insert"),
        limit=_number(environ, _LIMIT, 10, 1),
        timeout=timeout / 1000,
        health_check=health_check / 1000,
    )


def mailroom_key(text: str) -> bytes:
    """The key in its variable."""
    try:
        return read_key(text)
    except ValueError as error:
        raise ConfigError(f"{KEY}: {error}") from None


def _number(environ: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = environ.get(name, str(default))
    if (found := whole_number(text)) is not None and least <= found <= _MOST:
        return found
    raise ConfigError(f"{name}: {show(text)} is not a usable number; allowed: a whole number from {least} to {_MOST}")
