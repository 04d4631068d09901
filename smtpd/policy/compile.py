"""compile — compiles the section `policy` of smtpd.yaml

Owns: compiling rules and standing holds to predicates and effects, in the order of their evaluation by server and
    phase.
Guarantees: the only side effect of load_policy is reading list files: a policy that is returned is whole and can be
    swapped in by one assignment, and sessions that hold the old one keep it.
Raises: ConfigError when a list's file cannot be read.
See: docs/reference/policy.md
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from shared.config.smtpd.policy_condition import OF_RECIPIENT, PHASES
from shared.config.units import format_duration
from smtpd import replies
from smtpd.policy.conditions import predicates
from smtpd.policy.lists import FileList, QueryList
from smtpd.policy.texts import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.config.smtpd.policy import Hold, Policy, Rule
    from shared.config.smtpd.policy_action import Action
    from shared.config.smtpd.policy_check import Consequence, ContentCheck
    from shared.config.smtpd.settings import SmtpdConfig
    from smtpd.policy.conditions import Predicate
    from smtpd.policy.decision import Known, Verdict
    from smtpd.policy.facts import Facts, Phase

CHECK_RULE: Final = "contentcheck"
_EMPTY: Final = Text("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The compiled action of a rule. `did` describes it as smtpd.yaml does; `tag` passes on the check's fields."""

    verdict: Verdict | None = None
    reply: str | None = None
    hold: str | None = None
    holdreason: Text = _EMPTY
    metadata: tuple[tuple[str, Text], ...] = ()
    partition: str | None = None
    partitionkey: str | None = None
    transport: str | None = None
    priority: int | None = None
    headers: tuple[tuple[str, Text], ...] = ()
    delay: float = 0.0
    tag: bool = False
    did: str = ""
    changes: bool = True  # whether anything is set at all
    named: bool = True  # whether metadata _policyrule names the rule


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule: every predicate must hold, then the effect is done."""

    id: str
    predicates: tuple[Predicate, ...]
    effect: Effect
    of_recipient: bool = False  # asks something of one recipient

    def matched_because(self, facts: Facts) -> str:
        """Why it matched: each condition with the fact."""
        if not self.predicates:
            return "always"
        bare = {"not", "any", "time", "score", "symbols", "rate"}  # the fact would say why not
        return ", ".join(p.key if p.key in bare else p.because(facts) for p in self.predicates)


class CompiledCheck:
    """The content check's verdicts as rules of their own, asked after all others."""

    def __init__(self, settings: ContentCheck) -> None:
        self.settings = settings
        self._effects = {
            action: self._rule(f"rspamd says {action}", does) for action, does in settings.actions.by_name.items()
        }
        self._none = self._rule("rspamd says no action", "accept", passing=True)
        self._skipped = self._rule("not checked", "accept")
        self._down = self._rule("rspamd does not answer", settings.whendown, down=True)

    def effect(self, known: Known) -> CompiledRule:
        """The meaning of the answer; raises Unanswered before it was asked."""
        result = known.checked()
        if result is not None:
            return self._effects.get(result.action, self._none)
        return self._down if known.check == "down" else self._skipped

    def _rule(self, why: str, does: Consequence, *, down: bool = False, passing: bool = False) -> CompiledRule:
        reply: str | None = None
        verdict: Verdict | None = None
        if does == "reject":
            verdict, reply = "reject", replies.R554_CONTENT_REFUSED
        elif does == "defer":
            verdict, reply = "defer", replies.R451_LOCAL_ERROR if down else replies.R451_CONTENT_DEFERRED
        effect = Effect(
            verdict=verdict,
            reply=reply,
            hold=self.settings.hold if does == "hold" else None,
            holdreason=Text(why),
            tag=passing or does in {"tag", "hold"},
            did=f"{why}: {does}",
            changes=passing or does in {"tag", "hold"},
            named=does in {"tag", "hold"},
        )
        return CompiledRule(CHECK_RULE, (), effect)


class CompiledPolicy:
    """Rules by server and phase, with the lists they look in. Nothing here changes but the entries of lists."""

    def __init__(self, policy: Policy, servers: Sequence[str], lists: Mapping[str, FileList | QueryList]) -> None:
        self.partitionkey = policy.partitionkey
        self.lists = lists
        self._files = [each for each in lists.values() if isinstance(each, FileList)]
        self.check = CompiledCheck(policy.contentcheck) if policy.contentcheck is not None else None
        compiled = [(entry, _compiled(entry, lists)) for _, entry in policy.entries()]
        self._rules: dict[tuple[str, str], tuple[CompiledRule, ...]] = {}
        for server in servers:
            for phase in PHASES:
                self._rules[server, phase] = tuple(
                    rule
                    for entry, rule in compiled
                    if entry.phase == phase and (entry.servers is None or server in entry.servers)
                )

    def rules(self, phase: Phase, server: str) -> tuple[CompiledRule, ...]:
        """The rules to evaluate, in order; none for a server that is not configured."""
        return self._rules.get((server, phase), ())

    def by_recipient(self, server: str) -> bool:
        """Whether the end of data has to be decided for each recipient."""
        return any(rule.of_recipient for rule in self.rules("eod", server))

    async def refresh(self) -> None:
        """Read the files of lists that have changed."""
        for each in self._files:
            await each.refresh()


def load_policy(config: SmtpdConfig) -> CompiledPolicy:
    """The policy of a configuration. Raises ConfigError when a list's file cannot be read."""
    return compile_policy(config.policy, [server.id for server in config.servers])


def compile_policy(policy: Policy, servers: Sequence[str] = ("default",)) -> CompiledPolicy:
    """As load_policy, of the section alone."""
    lists: dict[str, FileList | QueryList] = {}
    for index, source in enumerate(policy.lists):
        place = f"policy.lists[{index}]"
        lists[source.id] = FileList(source, place) if source.file is not None else QueryList(source)
    return CompiledPolicy(policy, servers, lists)


def _compiled(entry: Rule | Hold, lists: Mapping[str, FileList | QueryList]) -> CompiledRule:
    asked = {name for _, name in entry.condition.asked()}
    written = {name for _, name in entry.action.placeholders()}
    return CompiledRule(
        entry.id,
        predicates(entry.condition, entry.id, lists),
        _effect(entry.action, entry.id),
        of_recipient=bool(OF_RECIPIENT & (asked | written)),
    )


def _effect(action: Action, rule: str) -> Effect:
    verdict: Verdict | None = None
    if action.accept:
        verdict = "accept"
    elif action.reject is not None:
        verdict = "reject"
    elif action.defer is not None:
        verdict = "defer"
    changing = ("hold", "metadata", "partition", "partitionkey", "transport", "priority", "addheader")
    return Effect(
        verdict=verdict,
        reply=action.reject or action.defer,
        hold=action.hold,
        holdreason=Text(action.holdreason or f"rule {rule}"),
        metadata=tuple((key, Text(text)) for key, text in action.metadata.items()),
        partition=action.partition,
        partitionkey=action.partitionkey,
        transport=action.transport,
        priority=action.priority,
        headers=tuple((name, Text(text)) for name, text in action.addheader.items()),
        delay=action.delay.total_seconds() if action.delay is not None else 0.0,
        did=_did(action),
        changes=any(getattr(action, name) not in (None, {}) for name in changing),
    )


def _did(action: Action) -> str:
    """The action as one would write it in smtpd.yaml."""
    done = []
    for name in type(action).model_fields:
        value = getattr(action, name)
        if value in (None, {}, False):
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{key}: {text}" for key, text in value.items())
        elif isinstance(value, timedelta):
            value = format_duration(value)
        done.append("accept" if name == "accept" else f"{name}: {value}")
    return "; ".join(done)
