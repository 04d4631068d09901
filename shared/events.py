"""events — the names of what happens, and one line of log for each

Owns: the table of event names; the log format of both daemons; who watches which event (metrics, health).
Called by: everybody who has something to tell; `setup` once by each entry point.
Guarantees: a name not in the table cannot be emitted. One event is one line, whatever its values contain. An event that
    nobody watches and the log leaves out costs two look-ups.
See: docs/reference/events.md, generated from EVENTS; names feed logs, metrics and analytics, so renaming one breaks
    users.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

#: name → (level, what it means; its fields)
EVENTS: Final[dict[str, tuple[int, str]]] = {
    "daemon.started": (INFO, "A daemon is ready; `role`, `pid`, and what it serves."),
    "daemon.stopping": (INFO, "A signal asked a daemon to stop; `signal`."),
    "daemon.waiting": (INFO, "Stopping waits; `step`, `on` names for whom."),
    "daemon.stopped": (INFO, "A daemon has stopped; `seconds` since it was asked to, `left` what it had to leave."),
    "daemon.failed": (ERROR, "A part of a daemon died, so the daemon stops; `part`, `error`."),
    "daemon.privileged": (WARNING, "A daemon runs as root; `hint` says how not to."),
    "daemon.reloaded": (INFO, "A daemon uses its configuration as it now is; open sessions keep theirs."),
    "daemon.reload_ignored": (WARNING, "Changes that wait for a restart; `keys`."),
    "daemon.reload_refused": (ERROR, "The configuration cannot be used, so the old one stays; `error`."),
    "load.shedding": (WARNING, "New clients are told 421 from now on; `reason`, `sessions`, `lag` in seconds."),
    "load.restored": (INFO, "New clients are served again; `refused` were told 421, in `seconds`."),
    "rates.unanswered": (WARNING, "Nobody counted, so the client was let in; said once a minute; `ask`, `error`."),
    "session.opened": (DEBUG, "A client connected; `client`."),
    "session.closed": (DEBUG, "A client's connection ended; `client`."),
    "session.error": (
        ERROR,
        "Our own fault while serving a client, who got 451; `client`, `id` to search for, `error`.",
    ),
    "session.refused": (INFO, "A command was refused; `client`, `reply`, and the address concerned."),
    "authenticate.succeeded": (INFO, "A client logged in; `client`, `user`, `mechanism`."),
    "authenticate.refused": (
        INFO,
        "A login failed; `client`, `user` as claimed, `mechanism`, `reason`, `seconds` its reply waits.",
    ),
    "authenticate.banned": (
        WARNING,
        "One failure too many: logins of `client`, and of `user` from its network, are refused for a while.",
    ),
    "authenticate.busy": (WARNING, "Too many passwords wait to be hashed: a login got 454; `client`."),
    "tls.failed": (INFO, "A TLS handshake failed, so the connection ended; `client`, `error`."),
    "tls.expires": (
        WARNING,
        "A certificate ends soon, has ended or has not begun; `certificate`, `names`, `days`, `begins`.",
    ),
    "users.read": (INFO, "The file of users has changed and was read; `file`, `users`."),
    "users.refused": (ERROR, "The file of users has changed and cannot be used, the old stays; `file`, `error`."),
    "users.unavailable": (ERROR, "The table of users could not be asked: a login got 454; `error`."),
    "policy.list_read": (INFO, "A list's file changed and was read; `list`, `file`, `entries`."),
    "policy.list_unreadable": (
        ERROR,
        "A list's file changed and cannot be read: the entries it had stay; `list`, `file`, `error`.",
    ),
    "policy.list_unavailable": (
        ERROR,
        "A list's query could not be answered: the client got 451; `client`, `error`.",
    ),
    "content.checked": (INFO, "rspamd checked a message; `client`, `action`, `score`, `seconds`."),
    "content.skipped": (INFO, "A message is too large to be checked; `client`, `size`."),
    "content.unavailable": (
        ERROR,
        "rspamd gave no verdict: policy.contentcheck.whendown applies; `client`, `error`, `seconds`.",
    ),
    "spool.committed": (
        INFO,
        "A message is safe; `id`, `sender`, `recipients`, `size`, `client`, `held`, `priority`, `due`.",
    ),
    "spool.reply_lost": (WARNING, "Committed, but the client hung up before 250: it may submit again; `id`, `client`."),
    "spool.abandoned": (INFO, "The client hung up before COMMIT: nothing is kept; `id`."),
    "spool.refused": (WARNING, "PostgreSQL refused one message, the others of its group went on; `id`, `error`."),
    "spool.unavailable": (ERROR, "A group could not be committed: its clients got 451; `messages`, `error`."),
    "spool.recovered": (INFO, "PostgreSQL takes mail again, after spool.unavailable."),
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
    "result.delivered": (
        INFO,
        "A recipient was delivered; `id`, `to`, `transport`, `remote`, `reply`, `tries`, `seconds`, `delay` in all.",
    ),
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
    "failover.passed": (INFO, "A host did not take part in an attempt, so the next one is asked; `remote`, `reason`."),
    "body.missing": (ERROR, "A claimed recipient has no body; it is put on hold; `id`, `recipient_id`."),
    "sign.loaded": (INFO, "A key for signatures was read; `rule`, `selector`, `algorithm`."),
    "sign.failed": (
        ERROR,
        "A message could not be signed by a fault of ours, so it waits or leaves unsigned; `id`, `error`, `onerror`.",
    ),
    "sign.skipped": (WARNING, "A message leaves unsigned, for no signature would hold; `id`, `domain`, `reason`."),
    "wakeup.listening": (DEBUG, "Listening for notifications."),
    "wakeup.heard": (DEBUG, "Notifications that concern this worker were heard; `partitions`, how many."),
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
    "metrics.failed": (WARNING, "A page of metrics or health could not be made; `page`, `error`."),
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
    "child.stuck": (
        ERROR,
        "A daemon did not say for too long that it is alive and is killed; `name`, `pid`, `seconds`.",
    ),
    "child.died": (WARNING, "A daemon died; `name`, `pid`, `status`, `seconds` until it is started again."),
}

_PLAIN = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f]+")
_LOG = logging.getLogger("pillarbox")


#: Told the fields of an event. It must be quick, and what it raises would end the part that emits.
type Watcher = Callable[[Mapping[str, object]], None]

_WATCHERS: dict[str, tuple[Watcher, ...]] = {}


@contextmanager
def watched(watchers: Mapping[str, Sequence[Watcher]]) -> Iterator[None]:
    """Tell these of every event of their name, whatever the log's level, as long as the block lasts."""
    for event, each in watchers.items():
        _WATCHERS[event] = (*_WATCHERS.get(event, ()), *each)
    try:
        yield
    finally:
        for event, each in watchers.items():
            _WATCHERS[event] = tuple(watcher for watcher in _WATCHERS[event] if watcher not in each)


def emit(event: str, /, **fields: object) -> None:
    """Log one event of the table, and tell who watches it. Values of any type; None is left out of the log."""
    level, _ = EVENTS[event]
    for watcher in _WATCHERS.get(event, ()):
        watcher(fields)
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
    # aiosmtpd: mail.log has every line of every session at INFO, mail.debug warns of what session.refused says.
    logging.getLogger("mail").setLevel(logging.ERROR)
