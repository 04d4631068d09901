"""reload — the changes of httpd.yaml that can be used while httpd runs

Owns: the keys that need a restart. Pure.
Guarantees: the returned configuration can be used at once by a process that began with `running`; changes without
    effect are named. Every section is in one of the two lists.
See: docs/how-to/operate/reload.md; smtpd/process/reload.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from shared.config.httpd.settings import HttpdConfig

#: The port is bound, privileges gone, connections to the database made: once, at the start.
FIXED: Final = frozenset({"listen", "processes", "user", "group", "metrics"})
#: Used by the next connection or request.
LIVE: Final = frozenset(
    {"environment", "tls", "proxy", "mail", "limits", "timeout", "rates", "oidc", "console", "shutdown"}
)
_FIXED_ENVIRONMENT: Final = ("database", "var")


def effective(running: HttpdConfig, wanted: HttpdConfig) -> tuple[HttpdConfig, list[str]]:
    """`wanted` with what cannot change taken from `running`, and the keys that were meant to change but wait."""
    ignored: list[str] = []
    changes = _kept(running, wanted, sorted(FIXED), "", ignored)
    environment = _kept(running.environment, wanted.environment, _FIXED_ENVIRONMENT, "environment.", ignored)
    changes["environment"] = wanted.environment.model_copy(update=environment)
    if (running.tls is None) != (wanted.tls is None):
        ignored.append("tls")
        changes["tls"] = running.tls
    return wanted.model_copy(update=changes), ignored


def _kept(running: Any, wanted: Any, keys: Any, prefix: str, ignored: list[str]) -> dict[str, Any]:
    """The values of these keys as they run; those that differ go on the list."""
    ignored += [f"{prefix}{key}" for key in keys if getattr(running, key) != getattr(wanted, key)]
    return {key: getattr(running, key) for key in keys}
