"""workers — verdicts on the workers and on the partitions that they serve

Owns: pure functions from the register, the workers' conditions and the partitions to findings.
Guarantees: no I/O. A partition without a worker is an alarm; a partition with several is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from operate.doctor.checks import Finding, Severity, listed, span
from shared.postgres.coverage import Partid, Serves, unserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Registered:
    """One row of the register."""

    worker: str  # id@host:pid
    id: str
    where: str
    live: bool
    silent: timedelta


@dataclass(slots=True)
class Proof:
    """The proof of one condition."""

    where: str
    fault: str | None = None
    answers: Mapping[Partid, Serves] = field(default_factory=dict)
    unpruned: Sequence[str] = ()  # leaves opened that can hold nothing of its
    opened: int = 0  # leaves that its claims open
    unproven: bool = False  # it could not be looked at: this session may not make a temporary table


@dataclass(frozen=True, slots=True)
class Server:
    """A condition and who delivers by it: ids of queued.yaml and of the register."""

    names: tuple[str, ...]
    live: bool
    proof: Proof


def who(configured: Mapping[str, str], registered: Iterable[Registered], proofs: Mapping[str, Proof]) -> list[Server]:
    """Conditions with the workers that have them; a row of the register that is silent counts for nothing."""
    names: dict[str, set[str]] = {}
    alive = set()
    for name, where in configured.items():
        names.setdefault(where, set()).add(name)
    for each in registered:
        if each.live:
            names.setdefault(each.where, set()).add(each.id)
            alive.add(each.where)
    return [Server(tuple(sorted(ids)), where in alive, proofs[where]) for where, ids in names.items()]


def live(configured: Mapping[str, str], registered: Sequence[Registered]) -> list[Finding]:
    """Workers that beat, that do not, and that run by another condition than their file has."""
    check = "worker.live"
    beating = {each.id for each in registered if each.live}
    found = []
    for name in sorted(set(configured) - beating):
        silent = [each for each in registered if each.id == name]
        if not silent:
            found.append(Finding(check, Severity.WARN, f"{name} of queued.yaml does not run", _start([name])))
    for each in registered:
        if not each.live and each.id not in beating:
            text = f"{each.worker} has been silent for {span(each.silent)} and did not sign off"
            found.append(Finding(check, Severity.WARN, text, f"look at its log; {_start([each.id])}"))
    if not found:
        running = listed(sorted(f"{each.worker}" for each in registered if each.live)) or "none is configured"
        found.append(Finding(check, Severity.OK, running))
    changed = sorted(
        each.worker for each in registered if each.live and configured.get(each.id, each.where) != each.where
    )
    if changed:
        text = f"{listed(changed)} runs with another WHERE than queued.yaml has"
        found.append(Finding("worker.changed", Severity.NOTE, text, "restart it, if this file is its file"))
    else:
        found.append(Finding("worker.changed", Severity.OK, "every WHERE is the one of queued.yaml"))
    return found


def conditions(servers: Iterable[Server]) -> list[Finding]:
    """Whether each condition is one, and whether its claims open only its own leaves."""
    found = []
    for each in servers:
        name, proof = listed(each.names), each.proof
        if proof.fault:
            text = f"{name}: {proof.where}: {proof.fault}"
            remedy = "use columns of queue and immutable functions: metadata->>'_partid' IN ('1', '2')"
            found.append(Finding("worker.condition", Severity.ALARM, text, remedy))
            continue
        if proof.unproven:
            text = f"{name}: {proof.where}: not looked at: doctor may not make a temporary table here"
            remedy = "run doctor on the primary, as a role with TEMPORARY on the database"
            found.append(Finding("worker.condition", Severity.WARN, text, remedy))
            continue
        found.append(Finding("worker.condition", Severity.OK, f"{name}: {proof.where}"))
        if proof.unpruned:
            text = f"{name}: its claims open {listed(proof.unpruned)}, where it can have no mail"
            remedy = "compare metadata->>'_partid' itself, without casts or other operators, by = or IN"
            found.append(Finding("worker.pruning", Severity.WARN, text, remedy))
        else:
            found.append(Finding("worker.pruning", Severity.OK, f"{name}: its claims open its own leaves"))
    return found


def served(servers: Sequence[Server], partids: Sequence[Partid], unknown: str) -> list[Finding]:
    """Whether each partition has a worker, and which have several; `unknown` is an id that nothing gives out."""
    known = [each for each in servers if each.proof.answers]
    found = []
    none = unserved(partids, [each.proof.answers for each in known])
    if none:
        text = f"no worker serves {names(none)}"
        remedy = "name it in a worker's WHERE (NULL: OR metadata->>'_partid' IS NULL) and start that worker"
        found.append(Finding("partition.served", Severity.ALARM, text, remedy))
    part = [p for p in partids if p not in none and not _any(known, p, {Serves.ALL})]
    if part:
        text = f"{names(part)}: served in part, or it cannot be proven"
        remedy = "give one worker a WHERE on the partition id alone"
        found.append(Finding("partition.served", Severity.WARN, text, remedy))
    asleep = [p for p in partids if p not in none and not _any([s for s in known if s.live], p, _SOME)]
    if asleep:
        text = f"no worker is alive that serves {names(asleep)}"
        owners = sorted({name for p in asleep for s in known if s.proof.answers[p] in _SOME for name in s.names})
        found.append(Finding("partition.served", Severity.WARN, text, _start(owners)))
    if not found:
        found.append(Finding("partition.served", Severity.OK, f"{names(partids)} are served"))
    if _any(known, unknown, _SOME):
        found.append(Finding("partition.unknown", Severity.OK, "mail with any other partition id would be served"))
    else:
        text = "mail with another partition id would wait for a worker"
        found.append(Finding("partition.unknown", Severity.NOTE, text))
    return [*found, _overlap(known, partids)]


def _start(workers: Sequence[str]) -> str:
    """How these workers of queued.yaml, at least one, are started."""
    return f"start worker {listed(workers)}: `pillarbox up` or systemctl start pillarbox-queued@{workers[0]}"


def waiting(servers: Sequence[Server], rows: Sequence[Partid], unserved: Sequence[Partid]) -> Finding:
    """Whether mail waits that no living worker selects.

    rows: ids with mail to deliver. unserved: ids with overdue mail that no worker's condition has selected for a while.
    """
    alive = [each for each in servers if each.live and each.proof.answers]
    stuck = [p for p in rows if not any(each.proof.answers.get(p, Serves.NONE) in _SOME for each in alive)]
    if stuck:
        text = f"mail of {names(stuck)} waits, and no worker is alive that serves it"
        remedy = "start the worker whose WHERE selects it (`pillarbox up` starts all), or add one"
        return Finding("partition.waiting", Severity.ALARM, text, remedy)
    if unserved:
        text = f"overdue mail of {names(unserved)} is selected by no living worker, though one serves a part of it"
        return Finding("partition.waiting", Severity.ALARM, text, "correct the WHERE of its worker, or add one")
    if part := [p for p in rows if not any(each.proof.answers.get(p) is Serves.ALL for each in alive)]:
        text = f"mail of {names(part)} waits, and whether a living worker selects it cannot be proven"
        return Finding("partition.waiting", Severity.NOTE, text, "give one worker a WHERE on the partition id alone")
    return Finding("partition.waiting", Severity.OK, "no mail waits without a worker")


def names(partids: Iterable[Partid]) -> str:
    """Partition ids as a person reads them."""
    each = ["NULL" if partid is None else partid for partid in partids]
    return f"partition {listed(each, 12)}" if each else "no partition"


_SOME = {Serves.ALL, Serves.PART}


def _any(servers: Iterable[Server], partid: Partid, wanted: set[Serves]) -> bool:
    return any(each.proof.answers[partid] in wanted for each in servers)


def _overlap(servers: Sequence[Server], partids: Sequence[Partid]) -> Finding:
    shared: dict[tuple[str, ...], list[Partid]] = {}
    for partid in partids:
        owners = sorted({name for s in servers if s.proof.answers[partid] in _SOME for name in s.names})
        if len(owners) > 1:
            shared.setdefault(tuple(owners), []).append(partid)
    if not shared:
        return Finding("partition.overlap", Severity.OK, "each partition has one worker")
    text = "; ".join(f"{names(ids)} by {listed(owners)}" for owners, ids in shared.items())
    return Finding("partition.overlap", Severity.NOTE, f"shared: {text}")
