"""checks — the forms of what doctor, policy, rules, partitions and analytics find, in JSON"""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from operate.shapes.shape import Shape, meaning

type Verdict = Literal["ok", "note", "warn", "alarm"]


class Finding(Shape):
    """The finding of one check."""

    check: str = meaning("The check (docs/reference/doctor.md).")
    verdict: Verdict = meaning("How bad it is.")
    found: str = meaning("What was found.")
    remedy: str = meaning("What to do; empty: nothing.")


class Diagnosis(Shape):
    """All findings of doctor."""

    verdict: Verdict = meaning("The gravest.")
    findings: list[Finding] = meaning("Every finding, the gravest first.")


class ListenerSeen(Shape):
    """An address of smtpd."""

    address: str = meaning("Address and port, as in smtpd.yaml.")
    accepts: bool = meaning("Whether it accepts connections, as seen from this host.")


class WorkerSeen(Shape):
    """A worker of the register."""

    worker: str = meaning("id@host:pid.")
    id: str = meaning("In queued.yaml.")
    host: str = meaning("Its host.")
    pid: int = meaning("Its process.")
    live: bool = meaning("Whether it beats.")
    started: datetime = meaning("When it started.")
    seen: datetime = meaning("When it last beat.")
    where: str = meaning("Which rows it claims.")


class DaemonSeen(Shape):
    """A process of the register."""

    daemon: str = meaning("id@host:pid-mark.")
    kind: str = meaning("smtpd, httpd, collect or queued.")
    id: str = meaning("Of a worker its id in queued.yaml, otherwise the kind.")
    version: str = meaning("Of Pillarbox, as it runs.")
    host: str = meaning("Its host.")
    pid: int = meaning("Its process.")
    live: bool = meaning("Whether it beats.")
    started: datetime = meaning("When it started.")
    seen: datetime = meaning("When it last beat.")


class Minutes(Shape):
    """How many in the last minutes."""

    one: int = meaning("In the last minute.")
    five: int = meaning("In the last 5 minutes.")
    fifteen: int = meaning("In the last 15 minutes.")
    more: bool = meaning("Whether there may be more, since more rows than are read are that young.")


class InState(Shape):
    """Recipients in one state."""

    recipients: int = meaning("How many.")
    oldest: datetime = meaning("When the oldest was accepted.")


class Status(Shape):
    """The whole system."""

    version: str = meaning("Of Pillarbox.")
    server: str = meaning("Of PostgreSQL.")
    now: datetime = meaning("The server's time.")
    listeners: list[ListenerSeen] = meaning("Every address of smtpd.yaml.")
    daemons: list[DaemonSeen] = meaning("Every process that runs or fell silent without a successor.")
    workers: list[WorkerSeen] = meaning("Every worker of the register.")
    accepted: Minutes = meaning("Recipients accepted, as the daemons counted or the newest 200,000 rows show.")
    attempts: dict[str, Minutes] = meaning("Attempts by outcome, likewise.")
    states: dict[str, InState] = meaning("The queue by state.")
    complete: bool = meaning("Whether all of the queue was counted: up to a million recipients.")
    trouble: list[Finding] = meaning("Warnings and alarms, the gravest first.")


class PolicyRead(Shape):
    """A policy that can be used."""

    file: str = meaning("The file.")
    rules: int = meaning("Its rules.")
    holds: int = meaning("Its holds.")
    lists: int = meaning("Its lists.")


class PolicyStep(Shape):
    """One rule that was asked."""

    rule: str = meaning("Its id.")
    matched: bool = meaning("Whether it fits.")
    because: str = meaning("Why.")
    does: str = meaning("What it does.")


class PolicyPhase(Shape):
    """One phase of a session."""

    phase: str = meaning("Its name.")
    recipient: str | None = meaning("The recipient it is about.")
    rule: str | None = meaning("The rule that decided.")
    reply: str | None = meaning("The reply.")
    delay: float = meaning("Seconds until the reply.")
    trail: list[PolicyStep] = meaning("Every rule that was asked.")


class PolicyRow(Shape):
    """An accepted recipient."""

    recipient: str = meaning("The address.")
    status: str = meaning("DELIVER or HOLD.")
    partition: str | None = meaning("The partition id.")
    transport: str = meaning("The transport.")
    priority: int | None = meaning("The priority.")
    metadata: dict[str, Any] = meaning("What policy adds.")


class PolicyTrial(Shape):
    """What policy makes of an envelope."""

    accepted: bool = meaning("Whether every recipient is accepted.")
    refused: str | None = meaning("The reply that refuses the message.")
    phases: list[PolicyPhase] = meaning("The phases in their order.")
    rejected: dict[str, str] = meaning("Refused recipients with their replies.")
    recipients: list[PolicyRow] = meaning("Accepted recipients.")
    headers: list[str] = meaning("Header lines that are added.")
    notes: list[str] = meaning("Where smtpd may differ.")


class Unruled(Shape):
    """What a reply means without rules."""

    outcome: str = meaning("delivered, deferred or failed.")
    scope: str | None = meaning("What it is about.")
    enhanced: str | None = meaning("The enhanced status code.")


class Suspension(Shape):
    """A suspend by rule."""

    seconds: float = meaning("For how long.")
    of: str = meaning("Of what.")


class RuleStep(Shape):
    """One rule of queued.yaml."""

    id: str = meaning("Its id.")
    matched: bool = meaning("Whether it fits.")
    because: str = meaning("Why.")


class RuleTrial(Shape):
    """What the rules of queued.yaml make of a reply."""

    without: Unruled = meaning("The outcome without rules.")
    outcome: str = meaning("The outcome with rules; held: put on hold.")
    text: str = meaning("What is recorded.")
    wait: float | None = meaning("Seconds until the next try, if a rule sets them.")
    hold: str | None = meaning("The quarantine.")
    suspend: Suspension | None = meaning("What is suspended.")
    lower: bool = meaning("Whether the destination gets one connection fewer.")
    fired: list[str] = meaning("The rules that decide.")
    rules: list[RuleStep] = meaning("Every rule.")


class Leaf(Shape):
    """A leaf of the queue."""

    leaf: str = meaning("The table.")
    ids: list[str] = meaning("Its partition ids; empty: all others.")
    recipients: int = meaning("Recipients in it.")
    by_id: dict[str, int] = meaning("Recipients by partition id.")
    bytes: int = meaning("Its size on disk.")


class LeafFault(Shape):
    """A fault of a table."""

    leaf: str = meaning("The table.")
    fault: str = meaning("What is wrong.")
    object: str = meaning("With what.")


class Leaves(Shape):
    """All leaves of the queue."""

    leaves: list[Leaf] = meaning("Each leaf.")
    faults: list[LeafFault] = meaning("What is wrong.")
    interrupted: bool = meaning("Whether a repartitioning was interrupted.")
    as_configured: bool = meaning("Whether they are those of smtpd.yaml.")


class RepartitionRound(Shape):
    """Leaves that are copied together."""

    copies: list[str] = meaning("From these leaves.")
    makes: dict[str, list[str]] = meaning("These leaves, with their partition ids.")
    renames: dict[str, str] = meaning("Renamed leaves.")
    estimate: int = meaning("About how many recipients are copied.")


class RepartitionStep(Shape):
    """One step."""

    why: str = meaning("What it does.")
    sql: list[str] = meaning("Its statements.")


class RepartitionPlan(Shape):
    """The steps to the wanted leaves."""

    rounds: list[RepartitionRound] = meaning("What is copied.")
    steps: list[RepartitionStep] = meaning("Every step.")


class Repartitioned(Shape):
    """What was done to the leaves."""

    steps: int = meaning("How many steps were taken.")
    leaves: dict[str, list[str]] = meaning("The leaves now, with their partition ids.")
    as_configured: bool = meaning("Whether they are those of smtpd.yaml.")


class Balance(Shape):
    """A proposal of leaves."""

    leaves: dict[str, list[str]] = meaning("The leaves, with their partition ids.")
    weights: dict[str, float] = meaning("The weight of each leaf.")
    changed: bool = meaning("Whether they differ from those of today.")


class ExportedDay(Shape):
    """A day that was exported."""

    table: str = meaning("attempts, archive or audit.")
    day: str = meaning("YYYY-MM-DD.")
    version: int = meaning("How often it was exported.")
    rows: int = meaning("Rows written.")


class Exports(Shape):
    """What `analytics export` has done."""

    days: int = meaning("Days exported.")
    rows: int = meaning("Rows read and written.")
    quarantined: int = meaning("Rows that could not be used, apart.")
    current: int = meaning("Days that were up to date.")
    compacted: int = meaning("Days whose files were joined.")
    refused: list[str] = meaning("Days that could not be exported, and why.")
    seconds: float = meaning("How long it took.")
    exported: list[ExportedDay] = meaning("Each day.")


class CleanedDay(Shape):
    """A day of history in PostgreSQL."""

    table: str = meaning("attempts or archive.")
    day: str = meaning("YYYY-MM-DD.")
    rows: int = meaning("Its rows.")
    state: str = meaning("verified, dropped or refused.")
    reason: str = meaning("Why it was refused.")


class FoundOrphans(Shape):
    """Rows without their counterparts."""

    bodies: list[UUID] = meaning("Bodies without recipients.")
    recipients: list[int] = meaning("Recipients without a body.")
    attempts: list[int] = meaning("Attempts without a recipient.")
    released: int = meaning("Bodies given to the sweep.")
    held: int = meaning("Recipients put on hold.")


class Cleanup(Shape):
    """What `analytics cleanup` has found or done."""

    days: list[CleanedDay] = meaning("Each old day.")
    orphans: FoundOrphans | None = meaning("With --orphans.")
    changed: bool = meaning("Whether it was done.")
    expired: int = meaning("Snapshots of the lake that expired.")
    files: list[str] = meaning("Files of the lake that nothing needs.")


class Generated(Shape):
    """Made-up history."""

    attempts: int = meaning("Rows of attempts.")
    archive: int = meaning("Rows of archive.")
    seconds: float = meaning("How long it took.")


class Minute(Shape):
    """Attempts in one minute."""

    minute: datetime = meaning("Its beginning.")
    outcome: str = meaning("delivered, deferred or failed.")
    attempts: int = meaning("How many.")
    seconds: float = meaning("How long they took together.")


class ReportSection(Shape):
    """One question and its answer."""

    key: str = meaning("Its name (docs/reference/analyses.md).")
    title: str = meaning("Its title.")
    meaning_: str = meaning("What it tells.", alias="meaning")
    more: bool = meaning("Whether there are more rows.")
    columns: list[str] = meaning("The columns of its rows.")
    rows: list[dict[str, Any]] = meaning("Its rows.")


class Report(Shape):
    """A report on history."""

    since: datetime = meaning("Its first instant.")
    until: datetime = meaning("The instant after its last.")
    made: datetime = meaning("When it was made.")
    origin: str = meaning("Where its history is from.")
    leaves: dict[str, list[str]] = meaning("Leaves that divide the work evenly.")
    sections: list[ReportSection] = meaning("Each section.")
