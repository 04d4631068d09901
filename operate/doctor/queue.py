"""queue — verdicts on the tables: leaves, counts, history, and the mail in them

Owns: pure functions from the rows of the tables to findings, and the requirements for every leaf.
Guarantees: no I/O.
See: sql/schema/04_leaf.sql: queue_guard gives a leaf what is required here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Limits, Severity, graded, graded_time, listed, span
from operate.doctor.server import mebibytes
from operate.doctor.workers import names
from shared.how_many import how_many
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from shared.postgres.database import Row

TRIGGERS: Final = (
    "queue_arrived",
    "queue_left",
    "queue_truncated",
    "queue_status",
    "queue_identity",
    "queue_partid",
    "queue_reviewed",
    "queue_decided",
    "queue_released",
    "queue_held",
    "milestone_released",
)
INDEXES: Final = (
    "queue_due_urgent",
    "queue_due_urgent_fresh",
    "queue_due_urgent_retried",
    "queue_due",
    "queue_due_retried",
    "queue_due_bulk",
    "queue_suspect",
    "queue_messages__id",
    "queue_finish",
)
_OF_HOLD: Final = ("queue_hold_ts", "queue_hold_quarantine")
_TRIGGERS_OF_HOLD: Final = ("queue_hold_claimed", "queue_hold_deleted", "milestone_held")
_DEFAULT_LEAF: Final = "queue_def_def"
_GUARD: Final = "pillarbox migrate makes leaves as they must be; for this one see pillarbox.queue_guard"


def leaves(rows: Sequence[Row], limits: Limits) -> list[Finding]:
    """The requirements for each table of the queue's tree."""
    found = [_triggers(rows)]
    own = [row for row in rows if row.leaf]
    bare = [row.name for row in own if not row.unique_id]
    text = f"{listed(bare)}: no UNIQUE (id)"
    found.append(_one("leaf.unique", Severity.ALARM, bare, text, "ALTER TABLE … ADD UNIQUE (id)", "on every leaf"))
    missing = [f"{row.name}: {listed(lost)}" for row in own if (lost := _lost(row))]
    text = f"missing or invalid: {'; '.join(missing)}"
    remedy = "REINDEX INDEX CONCURRENTLY an invalid one; make a missing one as sql/schema/03_queue.sql does"
    found.append(_one("leaf.indexes", Severity.ALARM, missing, text, remedy, "on every leaf, valid"))
    wrong = [f"{row.name}: {listed(odd)}" for row in own if (odd := storage(row.options))]
    found.append(
        _one("leaf.storage", Severity.WARN, wrong, "; ".join(wrong), _GUARD, "room for claims, vacuum by count")
    )
    found.append(_bloat(own, limits))
    return found


def _triggers(rows: Sequence[Row]) -> Finding:
    lost = [
        f"{row.name}: {listed(absent)}"
        for row in rows
        if (absent := [t for t in TRIGGERS + _of_hold(row, _TRIGGERS_OF_HOLD) if t not in row.triggers])
    ]
    text = f"missing or disabled: {'; '.join(lost)}: bodies are miscounted, or illegal moves pass"
    return _one("leaf.triggers", Severity.ALARM, lost, text, _GUARD, "on every table of the tree")


def _lost(row: Row) -> list[str]:
    return [index for index in INDEXES + _of_hold(row, _OF_HOLD) if index not in row.indexes]


def _of_hold(row: Row, names: tuple[str, ...]) -> tuple[str, ...]:
    """What the leaf of held mail has besides."""
    return names if row.name == "queue_hold" else ()


def storage(options: Sequence[str]) -> list[str]:
    """Which storage parameters of a leaf are not as claims need them."""
    given = dict(option.split("=", 1) for option in options)
    odd = []
    if int(given.get("fillfactor", "100")) >= 100:  # noqa: PLR2004 - PostgreSQL's default, a full page
        odd.append("fillfactor leaves no room for a claim's row version")
    if float(given.get("autovacuum_vacuum_scale_factor", "0.2")) > 0:
        odd.append("autovacuum_vacuum_scale_factor lets dead rows grow with the backlog")
    if given.get("autovacuum_enabled", "true") in {"false", "off", "0", "no"}:
        odd.append("autovacuum is disabled")
    return odd


def _bloat(rows: Sequence[Row], limits: Limits) -> Finding:
    total, each = limits.bloat
    tired = [
        f"{row.name}: {row.dead} dead of {how_many(row.live + row.dead, 'row')}"
        for row in rows
        if row.dead >= limits.dead
    ]
    tired += [
        f"{row.name}: {mebibytes(row.bytes)} for {how_many(row.live, 'row')}"
        for row in rows
        if row.bytes >= total and row.bytes >= each * (row.live + row.dead + 1)
    ]
    remedy = "see server.horizon; then VACUUM, or VACUUM FULL in a quiet hour if it is the size"
    return _one("leaf.bloat", Severity.WARN, tired, "; ".join(tired), remedy, "vacuum keeps up")


def vacuum(forbidden: Sequence[Row]) -> Finding:
    """Tables that maintenance leaves to autovacuum, for want of a right."""
    if not forbidden:
        return Finding("leaf.vacuum", Severity.OK, "this role may vacuum every leaf")
    text = f"this role may not vacuum {listed(row.leaf for row in forbidden)}: autovacuum alone cleans them"
    remedy = "where leaf.bloat shows that this is not enough: let the owner run a worker, or, from PostgreSQL 17 on, "
    return Finding("leaf.vacuum", Severity.NOTE, text, f"{remedy}GRANT MAINTAIN ON these tables")


def transports(rows: Sequence[Row], ruled: Sequence[str]) -> Finding:
    """Mail by a transport that queued.yaml lacks, and rules of smtpd.yaml that would make more of it."""
    check = "mail.transport"
    rules = f"policy rules of smtpd.yaml name {listed(ruled)}"
    if rows:
        text = "; ".join(f"{how_many(row.recipients, 'recipient')} by {show(row.transport)}" for row in rows)
        more = f"; {rules}, so more will come" if ruled else ""
        remedy = (
            "add it to transports in queued.yaml and reload queued, or correct what names it and "
            "`pillarbox queue move transport=ID --transport default`"
        )
        return Finding(check, Severity.ALARM, f"not in queued.yaml: {text}; it waits until it expires{more}", remedy)
    if ruled:
        remedy = "add it to transports in queued.yaml, or correct the rule"
        return Finding(check, Severity.WARN, f"{rules}, which queued.yaml lacks", remedy)
    return Finding(check, Severity.OK, "every transport is known")


def history(missing: Sequence[Row]) -> Finding:
    """Days without a partition, the soonest first."""
    verdict = Severity.ALARM if missing and missing[0].ahead <= 1 else Severity.WARN
    text = f"missing: {listed(row.missing for row in missing)}"
    remedy = "start a worker, which makes them each round, or run pillarbox migrate"
    return _one("history.days", verdict, missing, text, remedy, "the coming days are there")


def refcounts(row: Row) -> Finding:
    """Messages whose count is wrong."""
    text = f"{row.wrong} of {how_many(row.looked, 'message')}: {listed(row.examples or ())}"
    recount = "SELECT pillarbox.refcount_anew(ARRAY[…ids])"
    remedy = f"find out what changed the queue without its triggers (check leaf.triggers); then {recount}"
    return _one(
        "refcount.drift", Severity.ALARM, row.wrong, text, remedy, f"{how_many(row.looked, 'message')} looked at"
    )


def orphans(row: Row) -> Finding:
    """Queue rows whose body is gone."""
    text = f"{row.wrong} of {how_many(row.looked, 'row')}, among them id {listed(row.examples or ())}"
    remedy = "restore the messages from a backup, or set these rows to BOUNCE"
    return _one("refcount.body", Severity.ALARM, row.wrong, text, remedy, f"{how_many(row.looked, 'row')} looked at")


def due(rows: Sequence[Row], limits: Limits) -> list[Finding]:
    """Overdue mail by partition, and expired claims that were not taken over."""
    late = sorted((row for row in rows if row.oldest and row.oldest >= limits.overdue[0]), key=lambda row: -row.oldest)
    found = []
    if late:
        text = "; ".join(
            f"{names([row.partid])}: {row.waiting} wait, the oldest for {span(row.oldest)}" for row in late
        )
        remedy = "look at the worker that serves it: its log, its destinations, claim.inflight"
        found.append(Finding("mail.overdue", graded_time(late[0].oldest, limits.overdue), text, remedy))
    else:
        oldest = max((row.oldest for row in rows if row.oldest), default=None)
        found.append(
            Finding("mail.overdue", Severity.OK, f"the oldest waits for {span(oldest)}" if oldest else "none waits")
        )
    lost = [row for row in rows if row.lost]
    text = "; ".join(
        f"{names([row.partid])}: {row.lost} since {span(row.since)} by {listed(row.workers)}" for row in lost
    )
    remedy = "start a worker that serves the partition: it takes them over at its next full pass"
    return [*found, _one("mail.lease", Severity.WARN, lost, text, remedy, "no expired claims")]


def flow(row: Row, limits: Limits) -> Finding:
    """Whether anything is delivered while mail waits; `row` as query doctor_flow has it."""
    check = "mail.flow"
    if row.waited is None:
        return Finding(check, Severity.OK, "no mail waits for a try, or for a second one")
    idle = row.waited if row.idle is None else min(row.idle, row.waited)
    verdict = graded_time(idle, limits.flow)
    if not verdict:
        return Finding(check, Severity.OK, f"something was delivered or arrived in the last {span(limits.flow[0])}")
    if row.domains <= 1:
        verdict = Severity.NOTE
    last = "in a day" if row.idle is None else f"for {span(row.idle)}"
    most = "at least " if row.recipients >= limits.backlog else ""
    waits = f"{how_many(row.recipients, 'recipient')} of {how_many(row.domains, 'domain')}"
    text = f"nothing was delivered {last}, but mail waits: {most}{waits}"
    remedy = "look at last_error (pillarbox queue group last_error), mail.suspended, transport.reached and worker.live"
    return Finding(check, verdict, text, remedy if verdict > Severity.NOTE else "")


def default_leaf(rows: Sequence[Row], known: Container[str | None]) -> Finding:
    """The partition ids in the default leaf; `known` are the ids mail is expected to have."""
    strange = [row.partid for row in rows if row.partid not in known]
    text = "; ".join(f"{names([row.partid])}: {how_many(row.recipients, 'recipient')}" for row in rows)
    if strange:
        remedy = "give it a leaf and a worker, or correct metadata->>'_partid' of these rows"
        return Finding(
            "partition.default", Severity.WARN, f"{_DEFAULT_LEAF} holds unknown partition ids: {text}", remedy
        )
    if rows:
        return Finding("partition.default", Severity.NOTE, f"{_DEFAULT_LEAF} holds {text}")
    return Finding("partition.default", Severity.OK, f"{_DEFAULT_LEAF} is empty")


def hosts(rows: Sequence[Row], limits: Limits) -> Finding:
    """Mail that waits for hosts and name servers; the most first."""
    if not rows:
        return Finding("mail.hosts", Severity.OK, "none waits for a host that does not answer")
    gates = listed(
        f"{row.gate} ({how_many(row.recipients, 'recipient')} of {how_many(row.domains, 'domain')})" for row in rows
    )
    verdict = max(Severity.NOTE, graded(rows[0].recipients, limits.shut))
    remedy = (
        "check last_error (pillarbox queue list); suspend the destination or delete mail that it will never accept"
        if verdict > Severity.NOTE
        else ""
    )
    return Finding("mail.hosts", verdict, f"mail waits for {gates}", remedy)


def dead(rows: Sequence[Row], limits: Limits) -> Finding:
    """Dead letters of a day."""
    total = sum(row.recipients for row in rows)
    if not total:
        return Finding("mail.dead", Severity.OK, "none in the last day")
    text = f"in the last day {listed(f'{row.recipients} {row.result}' for row in rows)}"
    if total < limits.deadletters:
        return Finding("mail.dead", Severity.NOTE, text)
    return Finding(
        "mail.dead", Severity.WARN, text, "read last_error in archive; pillarbox.dead_letters_requeue sends again"
    )


def partitions(row: Row, configured: int) -> Finding:
    """In how many ids SQL hashes."""
    if row.partitions == configured:
        return Finding("schema.partitions", Severity.OK, how_many(configured, "partition id"))
    text = f"SQL hashes into {how_many(row.partitions, 'id')}, smtpd.yaml into {configured}: one domain, two partitions"
    return Finding("schema.partitions", Severity.WARN, text, "run pillarbox migrate, and restart smtpd")


def reviewers(row: Row, configured: Mapping[str, Sequence[str]]) -> Finding:
    """Whom PostgreSQL lets decide in which quarantine."""
    other = sorted(
        each for each in row.reviewers.keys() | configured.keys() if row.reviewers.get(each) != configured.get(each)
    )
    text = f"quarantines whose reviewers are others for PostgreSQL than in smtpd.yaml: {listed(other)}"
    return _one("schema.reviewers", Severity.WARN, other, text, "run pillarbox migrate", "as in smtpd.yaml")


def _one(check: str, verdict: Severity, faults: object, text: str, remedy: str, fine: str) -> Finding:
    """A finding of this verdict where there are faults."""
    return Finding(check, verdict, text, remedy) if faults else Finding(check, Severity.OK, fine)
