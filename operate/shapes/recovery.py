"""recovery — the forms of a recovery from a backup in JSON"""

from datetime import datetime
from uuid import UUID

from operate.shapes.shape import Shape, meaning


class Begun(Shape):
    """What `recover begin` would hold, or has held."""

    wanted: int = meaning("How many recipients waited.")
    schedules: int = meaning("How many schedules had missed an occurrence, and go on with the next one.")
    notices: int = meaning("How many notifications to senders are kept until the release.")
    ended: int = meaning("How many recipients had been deleted or bounced before the backup, and were finished.")
    done: int | None = meaning("How many were put on hold; null in the preview.")
    audit: int | None = meaning("The number of its audit row; null in the preview.")


class Showing(Shape):
    """The recovery under way."""

    begun: datetime | None = meaning("When it began; null: there is none.")
    held: int = meaning("How many recipients are on hold, for whatever reason.")
    waiting: int = meaning("How many of them the recovery holds.")
    settled: int = meaning("How many were settled.")
    notices: int = meaning("How many notifications to senders are kept.")


class SettlePreview(Shape):
    """What `recover settle` would finish."""

    wanted: int = meaning("How many recipients.")
    held: int = meaning("How many were compared.")
    proofs: dict[str, int] = meaning("How many by each kind of proof.")
    ambiguous: list[int] = meaning("Recipients that stay held, because a delivery fits several of them.")
    absent: list[UUID] = meaning("Messages that the logs say were accepted, and that are not here.")


class Released(Shape):
    """What `recover release` would release, or has released."""

    waiting: int = meaning("How many recipients.")
    notices: int = meaning("How many notifications to senders were kept until now.")
    audits: list[int] = meaning("The numbers of its audit rows; empty in the preview.")
