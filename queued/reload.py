"""reload — the changes of queued.yaml that can be used while the worker runs

Owns: the keys that need a restart. Pure.
Guarantees: the returned configuration can be used at once by a worker that began with `running`; changes without effect
    are named. Every section is in one of the two lists.
See: docs/how-to/operate/reload.md; smtpd/process/reload.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from shared.config.queued.settings import QueuedConfig

#: Connections to the database made, rows chosen, ports bound, parts begun: once, at the start.
FIXED: Final = frozenset({"workers", "claim", "wakeup", "maintenance", "metrics", "tracing"})
#: Used by the next attempt.
LIVE: Final = frozenset(
    {
        "environment",
        "transports",
        "transportgroups",
        "routing",
        "signing",
        "shutdown",
        "pacing",
        "rules",
        "bounces",
        "suppression",
        "webhooks",
    }
)
_FIXED_ENVIRONMENT: Final = ("database", "var")


def effective(running: QueuedConfig, wanted: QueuedConfig) -> tuple[QueuedConfig, list[str]]:
    """`wanted` with what cannot change taken from `running`, and the keys that were meant to change but wait."""
    ignored: list[str] = []
    changes = _kept(running, wanted, sorted(FIXED), "", ignored)
    environment = _kept(running.environment, wanted.environment, _FIXED_ENVIRONMENT, "environment.", ignored)
    changes["environment"] = wanted.environment.model_copy(update=environment)
    return wanted.model_copy(update=changes), ignored


def _kept(running: Any, wanted: Any, keys: Any, prefix: str, ignored: list[str]) -> dict[str, Any]:
    """The values of these keys as they run; those that differ go on the list, with where they differ below."""
    for key in keys:
        ignored += _differing(getattr(running, key), getattr(wanted, key), f"{prefix}{key}")
    return {key: getattr(running, key) for key in keys}


def _differing(running: Any, wanted: Any, path: str) -> list[str]:
    """The lowest keys below `path` that differ; a list counts as one key, but for workers, which have names."""
    if running == wanted:
        return []
    fields = getattr(type(running), "model_fields", None)
    if fields is not None:
        return [p for key in fields for p in _differing(getattr(running, key), getattr(wanted, key), f"{path}.{key}")]
    if path == "workers":
        was, now = ({worker.id: worker.where for worker in workers} for workers in (running, wanted))
        return [f"workers[{name}]" for name in (*was, *(now.keys() - was.keys())) if was.get(name) != now.get(name)]
    return [path]
