"""reviewing — the condition of a command of `pillarbox quarantine`, kept to what its user may decide about

Guarantees: ids that are no longer held are named on standard error.
See: operate/quarantine/access.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from operate.quarantine.access import admit, narrowed

if TYPE_CHECKING:
    import argparse

    from operate.quarantine.access import Narrowed
    from shared.config.smtpd.settings import SmtpdConfig
    from shared.postgres import database


async def narrow(connection: database.Connection, settings: SmtpdConfig, options: argparse.Namespace) -> Narrowed:
    """What the options `verb`, `condition` and `all` select, as far as it may be acted on."""
    access = await admit(connection, settings)
    everything = options.all
    return await narrowed(connection, access, options.verb, options.condition, everything=everything, note=_note)


def _note(line: str) -> None:
    sys.stderr.write(f"{line}\n")
