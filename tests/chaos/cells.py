"""cells — the table: which fault, at which instant, with which duplicates and delay allowed

Owns: Cell, and CELLS, every row that `make chaos` runs and docs/explanation/crash-table.md shows; limits of recovery.
Guarantees: pure; a cell says what is done (`strike`, a function of tests/chaos/strikes*.py), when, and its
    limits. Lost is 0 in all of them. The limit in a row is the asserted one, without a margin.
See: sql/README.md, "Crash table", for why each holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

type Recovery = Literal["lease", "soon", "whole"]
type Face = Literal["smtp", "http", "accounts"]

POLL: Final = 0.5  # seconds; `claim.poll` of the cells' workers (tests/fixtures/daemons/system.py)
ROUND: Final = 1.0  # seconds for a claim and its 60 recipients, 20 at once at 50 ms each, on a busy machine
SOON: Final = 5.0  # seconds; docs/explanation/crash-table.md, "Limits", derives both limits


@dataclass(frozen=True, slots=True)
class Cell:
    """One fault at one instant.

    name: for commands. fault, instant: for people. strike: causes and heals it. point: the failure point
    and its action, where the instant has one. lease: of the claims, in seconds. recovers: "lease", all that was
    accepted before has arrived a lease, a poll and a round after the fault's end; "soon", new mail is accepted and
    delivered 5 s after it; "whole", all that was accepted before has arrived 5 s after it.
    crosses: connections to PostgreSQL lead through a proxy, and connections to the sink through another.
    forgives: a pattern of log lines that are this fault's own and no fault of ours. refuses: may refuse mail for good.
    face: how applications submit; tests/chaos/applications says what they are promised. hooked: events go to a webhook.
    stuck: seconds after which it counts as stuck.
    """

    name: str
    fault: str
    instant: str
    strike: str
    point: str = ""
    lease: float = 4.0
    recovers: Recovery = "soon"
    crosses: bool = False
    processes: int = 1
    short: bool = False
    forgives: str = ""
    face: Face = "smtp"
    hooked: bool = False
    stuck: float = 240.0

    @property
    def limit(self) -> float:
        """Seconds that recovery may take."""
        return self.lease + POLL + ROUND if self.recovers == "lease" else SOON


def _killed(name: str, fault: str, instant: str, point: str, **more: object) -> Cell:
    """A daemon that kills itself at a point."""
    return Cell(name, fault, instant, "at_point", point, **more)  # type: ignore[arg-type]


_RANDOM: Final = "at random"
_SMTPD: Final = "smtpd, kill -9"
_CHILD: Final = "one of 2 smtpd processes, kill -9"
_HTTPD: Final = "httpd, kill -9"
_WORKER: Final = "worker, kill -9"
#: A worker that is started again at once takes what it had claimed, however long the lease.
_RESTARTED: Final[dict[str, Any]] = {"lease": 60.0, "recovers": "whole"}

CELLS: Final = (
    Cell("quiet", "none", "-", "nothing", short=True),
    # smtpd
    _killed("smtpd-before-copy", _SMTPD, "transaction begun, before COPY", "spool.before_copy:kill:8"),
    _killed("smtpd-before-commit", _SMTPD, "copied, before COMMIT", "spool.before_commit:kill:8", short=True),
    _killed("smtpd-after-commit", _SMTPD, "after COMMIT, no reply sent", "spool.after_commit:kill:30", short=True),
    _killed("smtpd-before-reply", _SMTPD, "COMMIT known, before 250", "receive.before_reply:kill:60"),
    _killed(
        "smtpd-child-after-commit", _CHILD, "after COMMIT, no reply sent", "spool.after_commit:kill:20", processes=2
    ),
    Cell("smtpd-child", _CHILD, _RANDOM, "smtpd_child", processes=2),
    Cell("smtpd-supervisor", "smtpd's supervisor, kill -9", _RANDOM, "smtpd_supervisor", processes=2),
    _killed(
        "smtpd-raises",
        "smtpd, an exception",
        "copied, before COMMIT",
        "spool.before_commit:raise:8",
        forgives="spool.refused|Provoked",
    ),
    # httpd, with clients that retry under their Idempotency-Key
    _killed(
        "httpd-before-commit", _HTTPD, "copied, before COMMIT", "spool.before_commit:kill:30", face="http", short=True
    ),
    _killed(
        "httpd-after-commit",
        _HTTPD,
        "after COMMIT, no answer sent",
        "spool.after_commit:kill:30",
        face="http",
        short=True,
    ),
    _killed("httpd-before-answer", _HTTPD, "COMMIT known, before 202", "receive.before_reply:kill:60", face="http"),
    _killed(
        "httpd-child-after-commit",
        "one of 2 processes of httpd, kill -9",
        "after COMMIT, no answer sent",
        "spool.after_commit:kill:30",
        face="http",
        processes=2,
        short=True,
    ),
    Cell("httpd-postmaster", "PostgreSQL, kill -9, under httpd", _RANDOM, "postmaster", lease=15, face="http"),
    Cell(
        "httpd-throughout",
        "httpd, a worker, PostgreSQL, kill -9, in turn",
        "25 times in 10,000 sends",
        "throughout",
        lease=8,
        stuck=1200,
        recovers="lease",
        face="http",
    ),
    # collectors of account mail
    _killed(
        "collector-before-commit",
        "one of 2 collectors, kill -9",
        "mail queued, before COMMIT",
        "collect.before_commit:kill:6",
        face="accounts",
        short=True,
    ),
    Cell(
        "collector-postmaster",
        "PostgreSQL, kill -9, under collectors",
        _RANDOM,
        "postmaster",
        lease=15,
        face="accounts",
    ),
    Cell(
        "collector-throughout",
        "a collector, a worker, PostgreSQL, kill -9, in turn",
        "25 times in 10,000 sign-ups",
        "throughout",
        lease=8,
        stuck=1200,
        recovers="lease",
        face="accounts",
    ),
    # workers
    _killed("worker-claimed", _WORKER, "claimed, nothing sent", "claim.taken:kill:6", **_RESTARTED),
    _killed(
        "worker-after-data",
        _WORKER,
        "final dot sent, reply not read",
        "deliver.after_data:kill:40",
        **_RESTARTED,
        short=True,
    ),
    _killed(
        "worker-after-reply",
        _WORKER,
        "reply read, result not handed over",
        "deliver.after_reply:kill:40",
        **_RESTARTED,
    ),
    _killed(
        "worker-before-record", _WORKER, "before the result's COMMIT", "result.before_record:kill:10", **_RESTARTED
    ),
    _killed("worker-after-record", _WORKER, "after the result's COMMIT", "result.after_record:kill:10", **_RESTARTED),
    Cell("worker", _WORKER, _RANDOM, "worker", **_RESTARTED),
    Cell(
        "worker-gone",
        "worker, kill -9, not started again",
        _RANDOM,
        "worker_gone",
        recovers="lease",
    ),
    _killed(
        "webhook-taken",
        _WORKER,
        "a webhook took events, their position not noted",
        "webhook.taken:kill:6",
        recovers="lease",
        hooked=True,
        short=True,
    ),
    _killed(
        "maintainer-in-sweep",
        "the worker that maintains, kill -9",
        "round of the sweep begun",
        "maintain.sweep:kill:8",
        recovers="lease",
    ),
    Cell(
        "maintainer-sweep-waits",
        "the worker that maintains, kill -9",
        "inside the sweep's statement",
        "maintainer_in_statement",
        recovers="lease",
    ),
    _killed(
        "worker-exits",
        "worker, exit",
        "reply read, result not handed over",
        "deliver.after_reply:exit:40",
        **_RESTARTED,
    ),
    Cell("worker-sleeps", "worker, SIGSTOP for longer than a lease", _RANDOM, "sleeper", recovers="lease", short=True),
    Cell(
        "late-deferral",
        "worker, SIGSTOP for longer than a lease",
        "before the result's COMMIT, a deferral",
        "late_deferral",
        "result.before_record:stop:1",
        recovers="lease",
        short=True,
    ),
    Cell("worker-memory", "worker, out-of-memory kill", _RANDOM, "out_of_memory", recovers="lease"),
    Cell(
        "worker-stopped",
        "worker, SIGTERM and started again",
        "results wait for a table that is locked",
        "stopped_worker",
        lease=8,
    ),
    Cell("smtpd-stopped", "smtpd, SIGTERM and started again", _RANDOM, "stopped_smtpd"),
    Cell("smtpd-and-worker", "smtpd and a worker, kill -9", _RANDOM, "smtpd_and_worker", recovers="lease"),
    # PostgreSQL
    Cell("backends-terminated", "every backend, pg_terminate_backend", _RANDOM, "terminate", lease=8),
    Cell("backend", "a PostgreSQL backend, kill -9", _RANDOM, "backend", lease=15, forgives="spool.refused"),
    Cell("postmaster", "PostgreSQL, kill -9", _RANDOM, "postmaster", lease=15, short=True),
    Cell("everything", "all daemons and PostgreSQL, kill -9", _RANDOM, "everything", recovers="lease", short=True),
    Cell(
        "results-wait",
        "way to PostgreSQL cut",
        "results of what was sent not recorded",
        "results_wait",
        lease=20,
        crosses=True,
    ),
    Cell("connections", "max_connections used up", _RANDOM, "no_connections", lease=20),
    # the network, the peer, the clock
    Cell("network-cut", "way to PostgreSQL cut", _RANDOM, "network_cut", lease=10, crosses=True, short=True),
    Cell("network-slow", "way to PostgreSQL slow, 300 ms", _RANDOM, "network_slow", lease=8, crosses=True),
    Cell("network-deaf", "way to PostgreSQL half-open, then reset", _RANDOM, "network_deaf", crosses=True),
    Cell(
        "claims-unanswered",
        "ten connections to PostgreSQL reset",
        "after a claim's COMMIT, answer not read",
        "claims_unanswered",
        lease=30,
        recovers="whole",
        crosses=True,
    ),
    Cell("sink-hangs", "peer hangs", _RANDOM, "sink_hangs", crosses=True),
    Cell("sink-resets", "peer resets connections", _RANDOM, "sink_resets", crosses=True),
    Cell("sink-garbage", "peer answers garbage", _RANDOM, "sink_garbage", crosses=True),
    Cell(
        "sink-after-dot",
        "peer dies after the final dot",
        "content taken, reply not sent",
        "sink_after_dot",
        crosses=True,
        short=True,
    ),
    Cell("clock-back", "daemons' clock stepped back 1 h", _RANDOM, "clock_back"),
    Cell("clock-forward", "daemons' clock stepped forward 1 h", _RANDOM, "clock_forward"),
    # operators
    Cell("hold-release", "backend of an operator, terminated", "inside hold, inside release", "hold_release"),
    Cell("late-recipient", "none", "body given another recipient within the grace", "late_recipient", short=True),
    Cell("repartition", "pillarbox partitions, kill -9", "between two steps", "repartition"),
    Cell(
        "repartition-postmaster",
        "PostgreSQL, kill -9",
        "inside the making of a repartition's workplace",
        "repartition_postmaster",
        lease=8,
    ),
    Cell("migration", "pillarbox migrate, kill -9", "inside a migration, before its COMMIT", "migration"),
    # together
    Cell("storm", "3 faults, drawn by the seed", _RANDOM, "storm", recovers="lease", crosses=True, processes=2),
)

BY_NAME: Final = {cell.name: cell for cell in CELLS}
