"""mutants — our packages with one safeguard removed

Owns: MUTANTS, each replacement of text with the cell that must fail; `mutated`, which makes the copy.
Guarantees: a replacement that does not apply exactly as often as stated is an error, because an unchanged copy would
    prove nothing. The tree itself is never touched; daemons find the copy first.
See: docs/explanation/crash-table.md, "The purpose of each safeguard".
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shared.postgres.queries import sections
from tests.fixtures.daemons.system import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGES: Final = ("smtpd", "queued", "httpd", "collect", "shared", "sql", "operate", "scripts")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A removed safeguard.

    file (of SQL with #query), old, new, times: the replacement. cell: the cell that fails; breaks: lost, queued (for
    good), duplicates, late.
    """

    safeguard: str
    file: str
    old: str
    new: str
    cell: str
    breaks: str
    times: int = 1
    short: bool = False


MUTANTS: Final = (
    Mutant(
        "250 only after COMMIT",
        "smtpd/session/receive.py",
        "await spool.submit(submission)",
        '__import__("asyncio").ensure_future(spool.submit(submission))',
        "smtpd-before-commit",
        "lost",
        short=True,
    ),
    Mutant(
        "token fence",
        "sql/queries/delivery/result.sql#result_record_if_claimed",
        " AND q.token = r.claimed_token",
        "",
        "late-deferral",
        "duplicates",
        times=2,
        short=True,
    ),
    Mutant(
        "lease: it ends",
        "sql/queries/delivery/claim.sql#claim",
        "lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s",
        "lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s + interval '1 day'",
        "worker-gone",
        "queued",  # also what the dead worker had sent without recording it, which is not lost
    ),
    Mutant(
        "lease: it keeps others off",
        "sql/queries/delivery/claim.sql#claim",
        "AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()) OR {unanswered} OR {ended})",
        "",
        "quiet",
        "duplicates",
        times=8,
    ),
    Mutant(
        "an unanswered claim is taken back",
        "queued/claiming/claim.py",
        "among_tokens(self._unanswered)",
        '"false"',
        "claims-unanswered",
        "late",
    ),
    Mutant(
        "a worker takes what its predecessor had",
        "queued/claiming/claim.py",
        "ENDED if self._ended",
        '"false" if self._ended',
        "worker-claimed",
        "late",
    ),
    Mutant(
        "results kept until recorded",
        "queued/result.py",
        "                self._backlog.back()\n                await self._rest(pause)\n",
        "                self._done(group)\n                continue\n",
        "results-wait",
        "duplicates",
    ),
    Mutant(
        "stopping waits for results",
        "queued/daemon.py",
        'await lifecycle.step("results"',
        'return; await lifecycle.step("results"',
        "worker-stopped",
        "duplicates",
    ),
    Mutant(
        "grace of the sweep",
        "sql/queries/upkeep/maintenance.sql#maintain_sweep",
        "%(grace)s",
        "interval '0'",
        "late-recipient",
        "lost",
        times=2,
    ),
    Mutant(
        "a key is taken in the transaction of its mail",
        "shared/spool/commit.py",
        "used = await _keys_taken(connection, submissions)",
        "used: dict[UUID, KeyUsed] = {}",
        "httpd-after-commit",
        "duplicates",
    ),
    Mutant(
        "a token is marked in the transaction of its mail",
        "collect/collector.py",
        """            async with connection.transaction():
                tokens = await self._mark(connection)
                if tokens:
                    await self.output.hand_over(connection, tokens)
                    reach("collect.before_commit")
""",
        """            tokens = await self._mark(connection)
            if tokens:
                reach("collect.before_commit")
                await self.output.hand_over(connection, tokens)
""",
        "collector-before-commit",
        "lost",
    ),
)


def changed(mutant: Mutant) -> str:
    """The text of the mutant's file with its change."""
    file, _, query = mutant.file.partition("#")
    whole = (ROOT / file).read_text(encoding="utf-8")
    text = dict(sections(whole))[query] if query else whole
    found = text.count(mutant.old)
    assert found == mutant.times, f"{mutant.file}: {mutant.old!r} is there {found} times, not {mutant.times}"
    return whole.replace(text, text.replace(mutant.old, mutant.new))


def mutated(mutant: Mutant | None, folder: Path) -> Mapping[str, str]:
    """The environment in which a daemon runs a copy of our packages, with the mutant's change if there is one."""
    for package in _PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant is not None:
        (folder / mutant.file.partition("#")[0]).write_text(changed(mutant), encoding="utf-8")
    # Safe path: the current folder, which is the tree itself, must not come first.
    environment = {"PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    asked = subprocess.run(
        [sys.executable, "-c", "import queued.result, sql; print(queued.result.__file__)"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert Path(asked.stdout.strip()) == folder / "queued" / "result.py", "the daemons do not use the copy"
    return environment
