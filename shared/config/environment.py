"""environment — the surroundings both daemons share: database, folder for run-time files, log

Owns: the section `environment` of smtpd.yaml and of queued.yaml.
Guarantees: no partition id belongs to two leaves; names of leaves can be part of a table's name; a worker's condition
names no key of metadata with `_` that does not exist.
The password within a database URI does not appear in a `repr`.
See: Halon's queue manual for `environment.database.uri` and `.where`; sql/README.md for the leaves
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from shared.config.fields import FilePath, Id, MisplacedError, Section, Text, matching, section, setting, whole
from shared.config.where_condition import mistaken_key
from shared.masking import show

Suffix = Annotated[
    str,
    matching(
        r"(?!def$)(?![a-z0-9_]*(?:_idx[0-9]*|_key|_queue_[a-z_]+)$)[a-z0-9_]{1,32}",
        "1 to 32 of a-z, 0-9 and underscore, other than def, not ending like an index (_idx, _key, _queue_due)",
    ),
]


def _each_in_one_leaf(leaves: dict[str, list[str]]) -> dict[str, list[str]]:
    owner: dict[str, str] = {}
    problems: list[tuple[tuple[str | int, ...], str]] = []
    for suffix, partitions in leaves.items():
        for index, partition in enumerate(partitions):
            if partition in owner:
                taken = f"{show(partition)} is already in leaf {owner[partition]}; allowed: each id in one leaf"
                problems.append(((suffix, index), taken))
            owner.setdefault(partition, suffix)
    if problems:
        raise MisplacedError(problems)
    return leaves


Leaves = Annotated[
    dict[Suffix, Annotated[list[Id], Field(min_length=1)]],
    AfterValidator(_each_in_one_leaf),
]


def _where(condition: str) -> str:
    if mistake := mistaken_key(condition):
        raise ValueError(f"{show(condition)}: {mistake}")
    return condition


Where = Annotated[Text, AfterValidator(_where)]


def _uri() -> Any:
    return setting(
        "embedded:",
        "The database that holds the queue, the same for smtpd and queued. embedded: starts a PostgreSQL under "
        "environment.var; anything else is a libpq URI or conninfo string of a PostgreSQL 15 or newer.",
        unit="text",
        repr=False,
    )


def _var() -> Any:
    return setting(
        "var", "The folder for the embedded server and for run-time files.", unit="path from the working folder"
    )


class Log(Section):
    """What is written to the log."""

    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The lowest level to log: debug, info, warning or error.", unit="word"
    )


class Partitions(Section):
    """How the queue is divided into partitions, which workers share among themselves."""

    count: Annotated[int, whole(1, 1024)] = setting(
        6, "Recipient domains are hashed to the partition ids 1 to this number.", unit="partitions"
    )
    leaves: Leaves = setting(
        {"123": ["1", "2", "3"], "456": ["4", "5", "6"]},
        "The leaves: tables that hold some partitions. The name is the suffix in queue_def_SUFFIX, the list its "
        "partition ids; all other ids are in queue_def_def.",
        unit="lists of partition ids by suffix",
    )


class SmtpdDatabase(Section):
    """The queue's database as smtpd sees it: it writes to every partition."""

    uri: Text = _uri()
    partitions: Partitions = section(Partitions, "How the queue is partitioned.")


class QueuedDatabase(Section):
    """The queue's database as one worker sees it: the rows that its condition selects."""

    uri: Text = _uri()
    where: Where = setting(
        "true",
        "The SQL condition on columns of queue that selects this worker's rows, if the worker is started without "
        "--worker.",
        unit="SQL condition",
    )


class SmtpdEnvironment(Section):
    """Where smtpd lives."""

    database: SmtpdDatabase = section(SmtpdDatabase, "The database that holds the queue.")
    var: FilePath = _var()
    log: Log = section(Log, "What is written to the log.")


class QueuedEnvironment(Section):
    """Where queued lives."""

    database: QueuedDatabase = section(QueuedDatabase, "The database that holds the queue.")
    var: FilePath = _var()
    log: Log = section(Log, "What is written to the log.")
