"""policy — rules that decide about clients, messages and recipients at acceptance

Owns: the section `policy` of smtpd.yaml: rules, standing holds, lists, the partition key, and that they fit together.
Guarantees: ids are unique; no rule has a condition or an action that its phase does not allow; every list that a rule
    names exists.
Raises: MisplacedError inside pydantic, with the key's path and the phases or lists allowed.
See: docs/reference/policy.md; Halon's metadata `_quarantineid` and `_partid`
"""

from collections.abc import Iterator
from typing import Annotated, Final, Self

from pydantic import AfterValidator, model_validator

from shared.config.fields import (
    FilePath,
    Id,
    Interval,
    MisplacedError,
    Section,
    Text,
    required,
    section,
    setting,
    unique_ids,
)
from shared.config.smtpd.policy_action import Action
from shared.config.smtpd.policy_check import ContentCheck
from shared.config.smtpd.policy_condition import OF_RECIPIENT, ONLY_AT_EOD, Condition, Path, Phase, known_at, phases_of
from shared.config.smtpd.policy_fields import SOME, PartitionKey, QuarantineId, Template
from shared.masking import show

type Problem = tuple[Path, str]

_SCORES: Final = frozenset({"score", "symbols"})


class Rule(Section):
    """One condition and what follows from it."""

    id: Id = required("The name of the rule, for logs and metrics.", unit="id, unique among the rules and holds")
    phase: Phase = setting(
        "rcptto",
        "When the rule is evaluated: connect, helo, auth, mailfrom, rcptto or eod (end of data).",
        unit="word",
    )
    servers: Annotated[list[Id], SOME] | None = setting(
        None, "The servers to whose sessions it applies.", unit="list of servers[].id", absent="all"
    )
    condition: Condition = section(Condition, "The conditions; without any it always matches.", alias="if")
    action: Action = required("The actions.", unit="section", alias="then")

    @model_validator(mode="after")
    def _phase_can(self) -> Self:
        problems = [*_too_early(self, ("then",)), *self._done_too_widely()]
        if problems:
            raise MisplacedError(problems)
        return self

    def _done_too_widely(self) -> Iterator[Problem]:
        """What is done to the one content must not depend on one recipient, who may not be the only one."""
        if self.action.partitionkey is not None and self.action.partition is not None:
            yield ("then", "partitionkey"), "and partition exclude each other; allowed: one of them"
        if not self.action.addheader:
            return
        if self.phase == "rcptto":
            text = "cannot be done at rcptto, since all recipients share one content"
            yield ("then", "addheader"), f"{text}; allowed: connect, helo, auth, mailfrom, eod"
        used = [name for _, name in self.condition.asked()] + [name for _, name in self.action.placeholders()]
        if self.phase == "eod" and OF_RECIPIENT.intersection(used):
            text = "cannot depend on recipient or recipientdomain, since all recipients share one content"
            yield ("then", "addheader"), f"{text}; allowed: in a rule that asks neither"


class Hold(Section):
    """A standing hold: matching mail is held even if the rules accept it."""

    id: Id = required("The name of the hold, for logs and metrics.", unit="id, unique among the rules and holds")
    servers: Annotated[list[Id], SOME] | None = setting(
        None, "The servers to whose sessions it applies.", unit="list of servers[].id", absent="all"
    )
    condition: Condition = section(Condition, "The conditions; without any it always matches.", alias="if")
    hold: QuarantineId = required(
        "The quarantine id (metadata _quarantineid) to hold recipients under.", unit="quarantine id"
    )
    holdreason: Template | None = setting(
        None, "Why they are held (metadata _holdreason).", unit="text with placeholders", absent="the hold's id"
    )

    @model_validator(mode="after")
    def _phase_can(self) -> Self:
        if problems := [*_too_early(self, ())]:
            raise MisplacedError(problems)
        return self

    @property
    def phase(self) -> Phase:
        """When it is asked: for each recipient, but at the end of data if it asks what is known only then."""
        return "eod" if any(name in ONLY_AT_EOD for _, name in self.condition.asked()) else "rcptto"

    @property
    def action(self) -> Action:
        """The same as a rule's action."""
        return Action(hold=self.hold, holdreason=self.holdreason)


class ListSource(Section):
    """A list that rules can search: a file or a query."""

    id: Id = required("The name that rules use for it.", unit="id, unique among the lists")
    file: FilePath | None = setting(
        None,
        "A file with one entry per line: addresses, domains, *.domains, networks, names; # begins a comment. Read "
        "again when it changes.",
        unit="path from the working folder",
        absent="a query instead",
    )
    query: Text | None = setting(
        None,
        "A query that returns a row if %(value)s is in the list; it runs in the queue's database with smtpd's role.",
        unit="SQL",
        absent="a file instead",
    )
    keep: Interval = setting("1m", "How long an answer of the query is cached.", unit="duration")
    timeout: Interval = setting("2s", "How long the query may take; after that the client gets 451.", unit="duration")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.query is None):
            raise ValueError("the list has no source or two; allowed: either file or query")
        if self.query is not None and "%(value)s" not in self.query:
            raise MisplacedError([(("query",), "does not ask for a value; allowed: SQL that contains %(value)s")])
        return self


class Policy(Section):
    """Rules that decide, at acceptance, about each client, message and recipient."""

    partitionkey: PartitionKey = setting(
        "recipientdomain",
        "The value whose hash is a recipient's partition id: recipientdomain, recipient, senderdomain, sender, user, "
        "header:NAME or metadata:KEY (such as metadata:tenant); if it is empty, the recipient's domain.",
        unit="word",
    )
    lists: Annotated[list[ListSource], AfterValidator(unique_ids)] = setting(
        [], "Lists for rules, each a file or a query.", unit="list of lists"
    )
    contentcheck: ContentCheck | None = setting(
        None, "The content check: rspamd, called over HTTP at eod.", unit="section", absent="content is not checked"
    )
    holds: Annotated[list[Hold], AfterValidator(unique_ids)] = setting(
        [],
        "Standing holds: evaluated before the rules, and not ended by an accept.",
        unit="list of holds",
    )
    rules: Annotated[list[Rule], AfterValidator(unique_ids)] = setting(
        [],
        "Rules, each with an id, a phase, conditions (if) and actions (then).",
        unit="list of rules",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = [*self._unknown_lists(), *self._repeated_ids()]
        if problems:
            raise MisplacedError(problems)
        return self

    def entries(self) -> Iterator[tuple[Path, Rule | Hold]]:
        """Standing holds and rules, in the order they are asked, each with its key path below policy."""
        yield from ((("holds", index), hold) for index, hold in enumerate(self.holds))
        yield from ((("rules", index), rule) for index, rule in enumerate(self.rules))

    def unknown_servers(self, servers: list[str]) -> Iterator[Problem]:
        """Where an entry names a server that is not there."""
        for path, entry in self.entries():
            for index, name in enumerate(entry.servers or ()):
                if name not in servers:
                    yield (
                        (*path, "servers", index),
                        f"server {show(name)} does not exist; allowed: {', '.join(servers)}",
                    )

    def _unknown_lists(self) -> Iterator[Problem]:
        lists = ", ".join(source.id for source in self.lists) or "none, since policy.lists is empty"
        for path, entry in self.entries():
            for below, condition in entry.condition.walk():
                at = (*path, "if", *below)
                if condition.inlist and condition.inlist.list not in {source.id for source in self.lists}:
                    yield (*at, "in", "list"), f"list {show(condition.inlist.list)} does not exist; allowed: {lists}"
            for below, name in entry.condition.asked():
                if name in _SCORES and self.contentcheck is None:
                    yield (*path, "if", *below), "nothing checks content; allowed: with a section policy.contentcheck"

    def _repeated_ids(self) -> Iterator[Problem]:
        holds = {hold.id for hold in self.holds}
        for index, rule in enumerate(self.rules):
            if rule.id in holds:
                yield ("rules", index, "id"), f"{show(rule.id)} is already a hold; allowed: each id once"


def _too_early(entry: Rule | Hold, then: Path) -> Iterator[Problem]:
    """The conditions and texts of the entry that its phase does not know yet."""
    for path, name in entry.condition.asked():
        if not known_at(name, entry.phase):
            yield ("if", *path), _not_yet(name, entry.phase)
    for path, name in entry.action.placeholders():
        if not known_at(name, entry.phase):
            yield (*then, *path), _not_yet(f"{{{name}}}", entry.phase, name)


def _not_yet(what: str, phase: Phase, name: str | None = None) -> str:
    return f"{what} is not known at {phase}; allowed: a rule at {phases_of(name or what)}"
