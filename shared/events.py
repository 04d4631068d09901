"""events — the names of what happens, and one line of log for each

Owns: the table of event names; the log format of both daemons.
Called by: everybody who has something to tell; `setup` once by each entry point.
Guarantees: a name not in the table cannot be emitted. One event is one line, whatever its values contain.
See: docs/reference/events.md, generated from EVENTS; names feed logs, metrics and analytics, so renaming one breaks
    users.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import Final

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

#: name → (level, what it means; its fields)
EVENTS: Final[dict[str, tuple[int, str]]] = {
    "daemon.started": (INFO, "A daemon is ready; `role`, `pid`, and what it serves."),
    "daemon.stopping": (INFO, "A signal asked a daemon to stop; `signal`."),
    "daemon.waiting": (INFO, "Stopping waits; `step`, `on` names for whom."),
    "daemon.stopped": (INFO, "A daemon has stopped; `seconds` since it was asked to, `left` what it had to leave."),
    "daemon.failed": (ERROR, "A part of a daemon died, so the daemon stops; `part`, `error`."),
    "session.opened": (DEBUG, "A client connected; `client`."),
    "session.closed": (DEBUG, "A client's connection ended; `client`."),
    "session.error": (
        ERROR,
        "Our own fault while serving a client, who got 451; `client`, `id` to search for, `error`.",
    ),
    "session.refused": (INFO, "A command was refused; `client`, `reply`, and the address concerned."),
    "spool.committed": (INFO, "A message is safe; `id`, `sender`, `recipients`, `size`, `client`, `held`."),
    "spool.reply_lost": (WARNING, "Committed, but the client hung up before 250: it may submit again; `id`, `client`."),
    "spool.abandoned": (INFO, "The client hung up before COMMIT: nothing is kept; `id`."),
    "spool.refused": (WARNING, "PostgreSQL refused one message, the others of its group went on; `id`, `error`."),
    "spool.unavailable": (ERROR, "A group could not be committed: its clients got 451; `messages`, `error`."),
    "spool.group": (DEBUG, "A group was committed; `messages`, `recipients`, `bytes`, `seconds`."),
    "claim.taken": (DEBUG, "Recipients were claimed; `recipients`, `token`."),
    "claim.expired": (
        WARNING,
        "A claim whose lease ran out was taken over: its mail may arrive twice; `recipient_id`, `token`.",
    ),
    "claim.lost": (
        WARNING,
        "A result came too late, another claim holds the row: a possible duplicate; `recipient_id`, `outcome`.",
    ),
    "claim.ended": (WARNING, "A lease ended in the middle of an attempt, which was cut off; `id`, `recipients`."),
    "claim.released": (INFO, "Claimed recipients were given back untried; `recipients`."),
    "claim.failed": (ERROR, "A claim could not be made; it is tried again; `error`, `seconds` until then."),
    "result.delivered": (INFO, "A recipient was delivered; `id`, `to`, `remote`, `reply`, `tries`, `seconds`."),
    "result.deferred": (INFO, "A recipient is tried again later; as delivered, with `next_retry`."),
    "result.failed": (WARNING, "A recipient is given up; as delivered, with `result`."),
    "result.unrecorded": (
        ERROR,
        "Results could not be recorded; they are tried again; `results`, `error`, `seconds` until then.",
    ),
    "result.refused": (
        ERROR,
        "PostgreSQL refused one result; its lease will run out and its mail be sent again; `recipient_id`, `error`.",
    ),
    "body.missing": (ERROR, "A claimed recipient has no body; it is put on hold; `id`, `recipient_id`."),
    "wakeup.listening": (DEBUG, "Listening for notifications."),
    "wakeup.lost": (WARNING, "The listening connection ended; polling goes on; `error`, `seconds` until the next try."),
    "wakeup.deaf": (
        WARNING,
        "The listening connection hears nothing any more, so it is opened anew; `seconds` until then.",
    ),
    "wakeup.swallowed": (
        WARNING,
        "Notifications do not get through at all: polling must do. Said once; `hint`, `seconds` until the next try.",
    ),
    "register.failed": (
        WARNING,
        "A worker could not tell the register that it is alive, or that it leaves; the next beat tries again; `error`.",
    ),
    "maintain.poison": (WARNING, "Recipients that made their worker lose the claim too often are held; `recipients`."),
    "maintain.renotified": (INFO, "Workers of partitions with overdue mail were woken; `partitions`."),
    "maintain.dropped": (INFO, "Days of history past keep-until were dropped; `partitions`."),
    "maintain.vacuumed": (DEBUG, "A leaf with many dead rows was vacuumed; `leaf`, `seconds`."),
    "maintain.swept": (DEBUG, "Bodies without recipients were collected; `messages`."),
    "maintain.finished": (INFO, "What an operator deleted or bounced was finished; `deleted`, `bounced`."),
    "maintain.days": (INFO, "Coming days of history were made; `partitions`."),
    "maintain.failed": (
        WARNING,
        "A step of maintenance failed, or, without `step`, a whole round; the next round tries again; `step`, `error`.",
    ),
    "schedule.sent": (
        INFO,
        "A recurring message was queued; `schedule`, `id`, `occurrence`, `seconds` it was late, `next`.",
    ),
    "schedule.disabled": (
        ERROR,
        "A schedule cannot be sent and is disabled until `pillarbox schedule enable`; `schedule`, `error`.",
    ),
    "schedule.failed": (WARNING, "Recurring mail could not be queued; it is tried again soon; `schedule`, `error`."),
    "child.started": (INFO, "The supervisor started a daemon; `name`, `pid`."),
    "child.failed": (ERROR, "A daemon that was asked to stop ended with an error; `name`, `pid`, `status`."),
    "child.died": (WARNING, "A daemon died; `name`, `pid`, `status`, `seconds` until it is started again."),
}

_PLAIN = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")
_LOG = logging.getLogger("pillarbox")


def emit(event: str, /, **fields: object) -> None:
    """Log one event of the table. Values of any type; None is left out."""
    level, _ = EVENTS[event]
    if _LOG.isEnabledFor(level):
        _LOG.log(level, event, extra={"fields": fields})


def quote(value: object) -> str:
    """A value on one line: plain where that is safe, else quoted with every control character escaped."""
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    if text.isprintable() and _PLAIN.fullmatch(text):
        return text
    escaped = "".join(
        c if c.isprintable() and c not in '"\\' else c.encode("unicode_escape").decode() if c != '"' else '\\"'
        for c in text
    )
    return f'"{escaped}"'


class Line(logging.Formatter):
    """`2026-11-21T07:00:00.123Z info spool.committed id=… recipients=3` (logfmt)."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, one line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = record.getMessage()
        fields: dict[str, object] = getattr(record, "fields", {})
        words = [
            f"{stamp}.{int(record.msecs):03d}Z",
            record.levelname.lower(),
            text if fields or text in EVENTS else quote(text),
        ]
        words += [f"{name}={quote(value)}" for name, value in fields.items() if value is not None]
        if record.exc_info:
            words.append(f"trace={quote(self.formatException(record.exc_info))}")
        return " ".join(words)


def setup(level: str) -> None:
    """Send the log of this process to standard error; `level` is debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Line())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _LOG.setLevel(level.upper())
    logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd logs every line of every session at INFO
