"""server — verdicts on the PostgreSQL server, its clock and its disk

Owns: pure functions from the server's settings and statistics to findings.
Guarantees: no I/O.
See: PostgreSQL manual, ALTER COLLATION, "Reliability", "Routine Vacuuming", "Replication Slots", NOTIFY.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Limits, Severity, graded, graded_time, listed, span
from shared.config.units import format_size
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.postgres.database import Row

_NEWEST: Final = 18  # the newest major version the tests run against


def version(row: Row) -> Finding:
    """Of the server; one too old has refused us already."""
    text = f"PostgreSQL {row.version}" + (", a standby" if row.standby else "")
    if row.number // 10_000 > _NEWEST:
        return Finding("server.version", Severity.NOTE, f"{text}: newer than tested ({_NEWEST})")
    return Finding("server.version", Severity.OK, text)


def durability(row: Row) -> Finding:
    """The durability of a commit."""
    if not row.unsafe:
        return Finding("server.durability", Severity.OK, "fsync, full_page_writes and synchronous_commit are on")
    off = {name.partition("=")[0] for name in row.unsafe}
    grave = off - {"synchronous_commit"}
    if grave:
        text = f"{listed(sorted(off))} off: a crash loses mail that was answered 250, or the database"
        return Finding("server.durability", Severity.ALARM, text, f"ALTER SYSTEM SET {min(grave)} = on")
    text = "synchronous_commit is off: a crash forgets the last results, whose mail is then sent again"
    return Finding("server.durability", Severity.WARN, text, "ALTER SYSTEM SET synchronous_commit = on")


def writable(row: Row) -> Finding:
    """Whether sessions can write; hosting services end that when the volume is full."""
    check = "server.writable"
    if row.standby:
        text = "PostgreSQL is a standby: no mail is accepted or delivered through it"
        return Finding(check, Severity.ALARM, text, "name the primary in environment.database.uri, or promote this one")
    if row.readonly:
        text = "default_transaction_read_only is on: no mail is accepted or delivered"
        remedy = "look at PostgreSQL's volume, then set it to off where it is on: ALTER SYSTEM, DATABASE or ROLE"
        return Finding(check, Severity.ALARM, text, remedy)
    return Finding(check, Severity.OK, "sessions can write")


def collation(row: Row) -> Finding:
    """Whether the order of texts is that in which they were indexed (ALTER DATABASE, REFRESH COLLATION VERSION)."""
    if row.sorted_by is None or row.sorts_by in {None, row.sorted_by}:
        return Finding("server.collation", Severity.OK, "texts are sorted as they were when they were indexed")
    text = (
        f"texts were indexed by version {row.sorted_by} of their collation, this host has {row.sorts_by}: "
        "a suppressed address, a principal or a key may not be found"
    )
    remedy = f'stop the daemons, REINDEX SCHEMA pillarbox, ALTER DATABASE "{row.database}" REFRESH COLLATION VERSION'
    return Finding("server.collation", Severity.WARN, text, remedy)


def restored(row: Row) -> Finding:
    """Whether mail that was sent after the backup may be sent again."""
    if not row.target or row.held:
        return Finding("server.restored", Severity.OK, "no restored mail goes on uncompared")
    text = f"restored ({row.target}) and not held: mail that was sent after that moment is sent again"
    remedy = "stop queued and run `pillarbox recover begin`, or reset that setting of PostgreSQL"
    return Finding("server.restored", Severity.WARN, text, remedy)


def volumes(rows: Sequence[Row], least: int, *, seen: bool) -> Finding:
    """Room for more mail, as reported; `seen`: smtpd looks at volumes of its own host."""
    check = "server.volumes"
    if old := [row for row in rows if not row.fresh]:
        text = f"{old[0].host}:{old[0].path} was last reported {span(old[0].age)} ago: smtpd does not know when to stop"
        remedy = "start `pillarbox volumes report` there again, or `pillarbox volumes forget --host` where it is gone"
        return Finding(check, Severity.ALARM, text, remedy)
    if not rows and not seen:
        text = "free space is not reported, so smtpd accepts mail until PostgreSQL's disk is full"
        return Finding(check, Severity.NOTE, text, "run `pillarbox volumes report PATH` on the server's host")
    if rows and (low := rows[0]).free < least:
        text = f"{format_size(low.free)} left on {low.host}:{low.path}: smtpd refuses mail below {format_size(least)}"
        return Finding(check, Severity.ALARM, text, "make room there; mail is delivered meanwhile")
    found = f"{format_size(rows[0].free)} left on {rows[0].host}:{rows[0].path}" if rows else "smtpd looks by itself"
    return Finding(check, Severity.OK, found)


def connections(row: Row, limits: Limits) -> Finding:
    """Room left."""
    used = row.connections / max(row.most, 1)
    text = f"{row.connections} of {row.most} in use"
    return Finding("server.connections", (verdict := graded(used, limits.connections)), text, _MORE if verdict else "")


_MORE = "raise max_connections, or run fewer processes"


def locks(row: Row, opened: Sequence[int], leaves: int, endpoints: int, limits: Limits) -> Finding:
    """`opened` says for each worker how many leaves its claims open, of all the leaves there are.

    A claim locks each leaf it opens with all its indexes, some in two ways. Beside it the worker has results, a
    heartbeat and parking, which name few leaves (queued/claiming/leaves.py), and one worker maintains all: a call that
    finishes or holds mail opens every leaf, one that looks for overdue mail opens 16. So does a look for events of each
    webhook's endpoint, where it needs recipients that are still queued.
    """
    wanted = sum(_LOCKS * each + _BESIDE for each in opened) + (2 + endpoints) * _LOCKS * leaves
    room = row.locks_each * row.lockers
    verdict = graded(wanted / room, limits.locks)
    who = f"{how_many(len(opened), 'worker')} over {how_many(leaves, 'leaf')}"
    who += f" and {how_many(endpoints, 'endpoint')}" if endpoints else ""
    text = f"{who} may want {how_many(wanted, 'lock')} at once, there is room for {room}"
    enough = -(-2 * wanted // row.lockers)
    remedy = f"ALTER SYSTEM SET max_locks_per_transaction = {enough} and restart; or give each worker leaves of its own"
    return Finding("server.locks", verdict, text, remedy if verdict else "")


# Counted in pg_locks: 72 of a claim over 3 leaves that is planned, 9,053 of one over 500; over 500 leaves 11,111 of
# maintain_finish, 5,556 of maintain_hold_poison, 194 of maintain_unserved_since, 5,600 of webhook_events.
_LOCKS: Final = 20
_BESIDE: Final = 400


def notifications(row: Row, listeners: Sequence[Row], limits: Limits) -> Finding:
    """How full the queue of notifications is, and who may keep it from being emptied."""
    verdict = graded(row.notifications, limits.notifications)
    text = f"{row.notifications:.2%} full"
    if not verdict:
        return Finding("server.notifications", verdict, text)
    oldest = "; ".join(f"pid {each.pid} {each.name} in a transaction for {span(each.age)}" for each in listeners)
    return Finding(
        "server.notifications", verdict, f"{text}: {oldest}", "end the session that listens in a transaction"
    )


def clock(skew: float, limits: Limits) -> Finding:
    """`skew` is by how much this host's clock is surely off, in seconds, ahead positive."""
    verdict = graded(abs(skew), limits.clock)
    if not verdict:
        return Finding("server.clock", verdict, "this host and the server agree")
    text = f"this host's clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the server's"
    return Finding("server.clock", verdict, text, "synchronise both clocks (NTP)")


def sure_skew(readings: Sequence[tuple[float, float, float]]) -> float:
    """The skew that remains whatever the network did: readings are (sent, server's time, received) in seconds.

    The server read its clock somewhere between sending and receiving, so it is only certain how far its time lies
    outside that span. The shortest round trip tells most.
    """
    sent, theirs, received = min(readings, key=lambda reading: reading[2] - reading[0])
    return sent - theirs if theirs < sent else received - theirs if theirs > received else 0.0


def horizon(holders: Sequence[Row], limits: Limits) -> Finding:
    """The oldest snapshots; `holders` the oldest first."""
    if not holders:
        return Finding("server.horizon", Severity.OK, f"no snapshot is older than {span(limits.horizon[0])}")
    verdict = graded_time(holders[0].age, limits.horizon)
    text = "; ".join(f"{each.what} {each.who} for {span(each.age)}" for each in holders[:3])
    remedies = {
        "transaction": "end it (SELECT pg_terminate_backend(PID)), or set idle_in_transaction_session_timeout",
        "prepared transaction": "COMMIT PREPARED or ROLLBACK PREPARED it",
        "standby": "hot_standby_feedback holds it: end the long query on the standby",
    }
    return Finding("server.horizon", verdict, text, remedies[holders[0].what])


def slots(rows: Sequence[Row], limits: Limits) -> list[Finding]:
    """One finding for each slot that is trouble."""
    found = []
    for row in rows:
        verdict = max(graded(row.wal, limits.wal), Severity.OK if row.active else Severity.WARN)
        if row.wal_status in {"lost", "unreserved"}:
            verdict = Severity.ALARM
        if verdict:
            age = f", {how_many(row.transactions, 'transaction')} old" if row.transactions else ""
            held = f"holds {mebibytes(row.wal)} of WAL{age}"
            text = f"{row.kind} slot {row.slot} ({row.database}): read by {row.reader}, {held}"
            remedy = f"start its reader again, or SELECT pg_drop_replication_slot('{row.slot}')"
            found.append(Finding("server.slots", verdict, text, remedy))
    fine = f"{how_many(len(rows), 'slot')}, all read" if rows else "none"
    return found or [Finding("server.slots", Severity.OK, fine)]


def disk(free: int, total: int, limits: Limits) -> Finding:
    """Octets under var."""
    alarming, worrying = limits.disk[1], limits.disk[0]
    verdict = Severity.ALARM if free <= alarming else Severity.WARN if free <= worrying else Severity.OK
    text = f"{mebibytes(free)} free of {mebibytes(total)}"
    return Finding("disk.var", verdict, text, "make room: PostgreSQL stops when the disk is full" if verdict else "")


def mebibytes(octets: int) -> str:
    """A size in whole mebibytes."""
    return format_size(octets >> 20 << 20) if octets >= 1 << 20 else f"{octets}B"
