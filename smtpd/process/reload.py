"""reload — the changes of a configuration that can be used while smtpd runs

Owns: the keys that need a restart. Pure.
Guarantees: the returned configuration can be used at once by a process that began with `running`; changes without
    effect are named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from shared.config.smtpd.settings import Server, SmtpdConfig

#: Ports are bound, privileges gone, connections to the database made: once, at the start.
_FIXED: Final = ("processes", "user", "group", "spool", "memory", "metrics", "tracing")
_FIXED_ENVIRONMENT: Final = ("database", "var")
_FIXED_LISTENER: Final = ("address", "port", "backlog")


def effective(running: SmtpdConfig, wanted: SmtpdConfig) -> tuple[SmtpdConfig, list[str]]:
    """`wanted` with what cannot change taken from `running`, and the keys that were meant to change but wait."""
    ignored: list[str] = []
    changes = _kept(running, wanted, _FIXED, "", ignored)
    environment = _kept(running.environment, wanted.environment, _FIXED_ENVIRONMENT, "environment.", ignored)
    changes["environment"] = wanted.environment.model_copy(update=environment)
    changes["servers"] = _servers(running.servers, wanted.servers, ignored)
    return wanted.model_copy(update=changes), ignored


def _kept(running: Any, wanted: Any, keys: tuple[str, ...], prefix: str, ignored: list[str]) -> dict[str, Any]:
    """The values of these keys as they run; those that differ go on the list."""
    ignored += [f"{prefix}{key}" for key in keys if getattr(running, key) != getattr(wanted, key)]
    return {key: getattr(running, key) for key in keys}


def _servers(running: list[Server], wanted: list[Server], ignored: list[str]) -> list[Server]:
    """The servers that run, in their order, each as it is wanted now."""
    by_id = {server.id: server for server in wanted}
    ignored += [f"servers[{server.id}]" for server in wanted if server.id not in {each.id for each in running}]
    found = []
    for server in running:
        new = by_id.get(server.id)
        if new is None:
            ignored.append(f"servers[{server.id}]")
        elif _sockets(new) != _sockets(server):
            ignored.append(f"servers[{server.id}].listeners")
            new = new.model_copy(update={"listeners": server.listeners})
        found.append(new or server)
    return found


def _sockets(server: Server) -> list[tuple[Any, ...]]:
    return [tuple(getattr(listener, key) for key in _FIXED_LISTENER) for listener in server.listeners]
