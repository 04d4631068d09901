"""transport_groups — the keys that transports inherit from their group

Owns: the inheritance from `transportgroups` to `transports` in the values of queued.yaml.
Guarantees: pure; the values passed in stay as they are. A section is inherited key by key, everything else as a whole:
    a transport's list replaces the group's. A transport's own value always wins, even null. Inherited places are
    marked, so that an error is reported once, where it is written. Malformed values stay, for the check to report.
See: Halon's transportgroups, the model for this; shared.config.queued.transport
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.config.yaml_source import KeyPath, YamlSource

_GROUPS: Final = "transportgroups"
_TRANSPORTS: Final = "transports"
_OWN: Final = {"id", "group"}  # keys that transports do not inherit


def inherit(source: YamlSource) -> YamlSource:
    """The same file, with every transport complete."""
    transports = source.values.get(_TRANSPORTS)
    groups = _groups(source.values.get(_GROUPS))
    if not groups or not isinstance(transports, list):
        return source
    inherited: set[KeyPath] = set()
    complete: list[object] = []
    for index, transport in enumerate(transports):
        wanted = transport.get("group") if isinstance(transport, dict) else None
        group = groups.get(wanted) if isinstance(wanted, str) else None
        complete.append(_merged(transport, group, (_TRANSPORTS, index), inherited) if group else transport)
    return replace(source, values={**source.values, _TRANSPORTS: complete}, inherited=frozenset(inherited))


def _groups(written: object) -> dict[str, dict[str, object]]:
    """The values of the groups, by id; of two with one id the first."""
    found: dict[str, dict[str, object]] = {}
    for group in written if isinstance(written, list) else ():
        if isinstance(group, dict) and isinstance(group.get("id"), str):
            found.setdefault(group["id"], {key: value for key, value in group.items() if key not in _OWN})
    return found


def _merged(
    own: Mapping[str, object], general: Mapping[str, object], path: KeyPath, inherited: set[KeyPath]
) -> dict[str, object]:
    merged = dict(own)
    for key, value in general.items():
        if key not in own:
            merged[key] = value
            inherited.add((*path, key))
        elif isinstance(value, dict) and isinstance(mine := own[key], dict):
            merged[key] = _merged(mine, value, (*path, key), inherited)
    return merged
