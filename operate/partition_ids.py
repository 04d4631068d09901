"""partition_ids — the partition ids that mail can get, and the refusal of any other that a command names

Guarantees: nothing is done before the refusal. Known are the ids that domains are hashed to, and those that leaves and
    policy rules name: `pillarbox doctor` proves that these have workers, and no others.
Raises: UnknownPartition with the option, the id and what is allowed; ConfigError when smtpd.yaml cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.errors import Refused
from shared.config.smtpd.load import load_smtpd
from shared.masking import show
from shared.postgres import coverage

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.smtpd.settings import SmtpdConfig
    from shared.postgres.coverage import Partid


class UnknownPartition(Refused):
    """A command names a partition id that nothing gives to mail."""

    exit_status = 64  # EX_USAGE, sysexits.h


def check_option(folder: Path, partid: str | None, option: str = "--partition") -> None:
    """Refuse an option's partition id unless smtpd.yaml in this folder knows it."""
    if partid is None:
        return
    config = load_smtpd(folder / "smtpd.yaml")
    known = [each for each in configured(config) if each is not None]
    if partid not in known:
        count = config.environment.database.partitions.count
        allowed = ", ".join([f"1 to {count}", *known[count:]])
        raise UnknownPartition(
            f"{option.removeprefix('--')}: {show(partid)} is not a partition id of smtpd.yaml; allowed: {allowed}",
            f"{option}: {show(partid)} is not a partition id of {folder / 'smtpd.yaml'}; allowed: {allowed}",
        )


def configured(smtpd: SmtpdConfig) -> list[Partid]:
    """The partition ids that mail can get: those domains hash to, those that policy rules and leaves name, and none."""
    partitions = smtpd.environment.database.partitions
    rules = (rule.action.partition for rule in smtpd.policy.rules)
    named = {partid for ids in partitions.leaves.values() for partid in ids} | {partid for partid in rules if partid}
    return coverage.configured(partitions.count, *named)
