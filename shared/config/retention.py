"""retention — how long what nobody decides about is kept

Owns: the section `retention` of smtpd.yaml.
Guarantees: nothing is deleted by default but old rows of audit. Attempts and archive are kept by queued.yaml's
    maintenance.keep.
See: docs/how-to/keep-and-delete.md; Halon's queue manual, 3.3.1
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
