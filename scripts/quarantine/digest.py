"""digest — `pillarbox quarantine digest`: mails a digest of a quarantine's new mail to its reviewers

Owns: the verb.
Raises: PillarboxError for errors that a reviewer can correct.
See: operate/quarantine/digest.py, which does it; docs/how-to/review/review-quarantined-mail.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.quarantine import digest as operation
from operate.quarantine.access import admit
from scripts.options import finish
from scripts.output import consent, records
from scripts.queue.query import run
from shared.config.smtpd.load import load_smtpd

if TYPE_CHECKING:
    import argparse

    from operate.shapes.mail import Digest
    from shared.postgres import database


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    verb = under.add_parser("digest", help="send reviewers a digest of new held mail, once per period")
    verb.add_argument(
        "ids", nargs="*", metavar="QUARANTINE", help="only of these (default: all whose notice names an address)"
    )
    consent.add_consent(verb)
    finish(verb, digest, acting=True)


def digest(options: argparse.Namespace) -> int:
    """Send what is due, or show it."""
    settings = load_smtpd(options.config / "smtpd.yaml")

    async def go(connection: database.Connection) -> None:
        access = await admit(connection, settings)
        chosen = operation.chosen(access, options.ids)
        if not options.yes:
            for quarantine in chosen:
                _print(options, await operation.digest(connection, settings, quarantine, send=False))
            if not await consent.agreed(options, "quarantine digest"):
                return
        operation.check_spooling(access)
        for quarantine in chosen:
            _print(options, await operation.digest(connection, settings, quarantine, send=True))

    run(options, go)
    return 0


def _print(options: argparse.Namespace, digest: Digest) -> None:
    """One quarantine's digest; its text where it was not sent."""
    if options.json:
        records.one(digest.model_dump(mode="json"))
        return
    print(f"{digest.quarantine}: {digest.said}")
    if digest.text and digest.message is None:
        print("\n".join(f"  {line}" for line in digest.text.splitlines()))
