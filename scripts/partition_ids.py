"""partition_ids — refuses a partition id that smtpd.yaml does not know, where a command names one

Guarantees: nothing is done before the refusal. Known are the ids that domains are hashed to, and those that leaves and
    policy rules name: `pillarbox doctor` proves that these have workers, and no others.
Raises: UnknownPartition with the option, the id and what is allowed; ConfigError when smtpd.yaml cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    from pathlib import Path


class UnknownPartition(PillarboxError):
    """A command names a partition id that nothing gives to mail."""

    exit_status = 64  # EX_USAGE, sysexits.h


def check_option(folder: Path, partid: str | None, option: str = "--partition") -> None:
    """Refuse an option's partition id unless smtpd.yaml in this folder knows it."""
    if partid is None:
        return
    config = load_smtpd(folder / "smtpd.yaml")
    partitions = config.environment.database.partitions
    hashed = {str(number) for number in range(1, partitions.count + 1)}
    named = {each for ids in partitions.leaves.values() for each in ids}
    named |= {rule.action.partition for rule in config.policy.rules if rule.action.partition is not None}
    if partid not in hashed | named:
        more = "".join(f", {each}" for each in sorted(named - hashed))
        raise UnknownPartition(
            f"{option}: {show(partid)} is not a partition id of {folder / 'smtpd.yaml'}; "
            f"allowed: 1 to {partitions.count}{more}"
        )
