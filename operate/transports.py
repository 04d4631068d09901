"""transports — refuses a transport that queued.yaml does not have, where a command or a policy rule names one

Guarantees: nothing is done before the refusal. On a host without queued.yaml nothing is refused here.
Raises: UnknownTransport with the place, the name and what is allowed; ConfigError when queued.yaml cannot be read.
See: sql/schema/07_enqueue.sql, transport_checked, for applications.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from operate.errors import Refused
from shared.config.queued.load import load_queued
from shared.errors import ConfigError
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig

_DEFAULT: Final = "default"


class UnknownTransport(Refused):
    """A command names a transport that queued.yaml does not have."""

    exit_status = 64  # EX_USAGE, sysexits.h


def check_option(folder: Path, names: Sequence[str], option: str = "--transport") -> None:
    """Refuse an option's transports unless queued.yaml in this folder has them all."""
    path = folder / "queued.yaml"
    if names and path.exists():
        known = _ids(load_queued(path))
        for name in names:
            if name not in known:
                plain = f"{option.removeprefix('--')}: {_unknown(name, Path(path.name), known)}"
                raise UnknownTransport(plain, f"{option}: {_unknown(name, path, known)}")


def check_policy(folder: Path, smtpd: SmtpdConfig, queued: QueuedConfig) -> None:
    """Refuse rules of smtpd.yaml that route mail to a transport that queued.yaml does not have.

    Mail that no rule routes, and what applications queue, takes the transport default.
    """
    known, path = _ids(queued), folder / "queued.yaml"
    problems = [
        f"{folder / 'smtpd.yaml'}: policy.rules[{index}].then.transport: {_unknown(name, path, known)}"
        for index, rule in enumerate(smtpd.policy.rules)
        if (name := rule.action.transport) is not None and name not in known
    ]
    if _DEFAULT not in known:
        problems.append(
            f"{path}: transports: no transport {_DEFAULT}, which mail takes that no rule routes; allowed: "
            f"{_DEFAULT} beside {', '.join(known)}"
        )
    if problems:
        raise ConfigError("\n".join(problems))


def _ids(queued: QueuedConfig) -> list[str]:
    return [transport.id for transport in queued.transports]


def _unknown(name: str, path: Path, known: Sequence[str]) -> str:
    return f"{show(name)} is not a transport of {path}; allowed: {', '.join(known)}"
