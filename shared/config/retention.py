"""retention — how long held mail is kept if no reviewer decides about it

Owns: the section `retention` of smtpd.yaml.
Guarantees: by default only old audit rows are deleted. How long attempts and archive are kept is set by
    maintenance.keep in queued.yaml.
See: docs/how-to/review/keep-and-delete.md; Halon's queue manual, 3.3.1
"""

from shared.config.fields import Interval, Section, setting


class Retention(Section):
    """How long `pillarbox retention` keeps held mail that no reviewer decides about."""

    default: Interval | None = setting(
        None,
        "How long to keep held mail whose quarantine has no retention, or that is in no quarantine.",
        unit="duration",
        absent="until a person decides",
    )
    audit: Interval = setting("365d", "How long to keep audit rows (who did what to the queue).", unit="duration")
