"""quarantine — the quarantines of held mail, in smtpd.yaml

Owns: the section `quarantines` of smtpd.yaml, and the two quarantines that always exist.
Guarantees: a quarantine of held mail (metadata _quarantineid) needs no entry here; an entry names its reviewers, the
    addresses that get its digest, and its retention. A digest's addresses are ones that pillarbox.enqueue accepts.
See: docs/how-to/review/review-quarantined-mail.md; sql/README.md, `_quarantineid`
"""

import re
from contextlib import suppress
from typing import Annotated, Final

from shared.config.fields import Checked, Interval, Section, Text, quotes_hint, required, section, setting
from shared.config.smtpd.policy_fields import QuarantineId
from shared.mail.address import AddressRefused, parse
from shared.masking import show


def _mailbox(value: object) -> str:
    if isinstance(value, str):
        with suppress(AddressRefused):
            return str(parse(value))
    raise ValueError(
        f"{show(value)} is not an address; allowed: an address such as user@example.com{quotes_hint(value)}"
    )


_URL: Final = re.compile(r"https?://[!$-;=@-~]+")


def _url(value: object) -> str:
    if isinstance(value, str) and _URL.fullmatch(value):
        return value
    raise ValueError(f"{show(value)} is not the address of httpd; allowed: http or https, a host, a port, a path")


Url = Annotated[str, Checked(_url, {"type": "string", "pattern": "^https?://"})]
Mailbox = Annotated[str, Checked(_mailbox, {"type": "string"})]


class Notice(Section):
    """The digest of new mail in a quarantine."""

    to: list[Mailbox] = setting([], "Who gets the digest of new mail.", unit="list of addresses")
    sender: Mailbox | None = setting(
        None,
        "The sender of the digest, who is notified if it cannot be delivered.",
        unit="address",
        absent="postmaster at servers[0].hostname",
    )
    every: Interval = setting("1d", "At most one digest per period, counted from midnight UTC.", unit="duration")
    url: Url | None = setting(
        None,
        "Where reviewers reach httpd. Each address of `to` that is the name of a person who reviews gets a digest of "
        "its own then, with a link to decide about each message.",
        unit="URL",
        absent="no links",
    )
    expires: Interval = setting("3d", "How long such a link works, once.", unit="duration")


class Quarantine(Section):
    """Mail that is held for one reason, and the reviewers who decide about it."""

    id: QuarantineId = required("The quarantine id that policy holds mail under.", unit="quarantine id, unique")
    description: Text | None = setting(
        None, "What this quarantine is for, in a sentence for reviewers.", unit="text", absent="no description"
    )
    retention: Interval | None = setting(
        None, "How long mail is held before retention deletes it.", unit="duration", absent="until a person decides"
    )
    reviewers: list[Text] = setting(
        [],
        "Principals, and logins and roles of PostgreSQL, that may decide here, besides operators; [] is every "
        "reviewer. PostgreSQL enforces what the last `pillarbox migrate` read.",
        unit="list of names",
    )
    notice: Notice = section(Notice, "The digest of new mail.")


#: Always there, unless `quarantines` says more of them: maintenance itself holds mail in these.
BUILT_IN: Final = (
    Quarantine(id="poison", description="A worker died or went silent each time it was tried"),
    Quarantine(id="body", description="Its body is missing, so that no further try could send it"),
)


def reviewers(declared: list[Quarantine]) -> dict[str, list[str]]:
    """The reviewers of each quarantine that names any, by its id: as PostgreSQL has them."""
    return {each.id: each.reviewers for each in declared if each.reviewers}


def all_quarantines(declared: list[Quarantine]) -> dict[str, Quarantine]:
    """Every quarantine that is known, by id."""
    return {each.id: each for each in (*BUILT_IN, *declared)}
