"""react — carries out rules about destinations, and logs which rule decided

Owns: the compiled rules of a configuration, and asking for a suspension or a lower concurrency no more often than
    needed.
Guarantees: a rule that fails is ignored: the outcome stays as it was, and the log says so (rules.failed). Many
    recipients of one reply ask once. The memory for that is bounded.
See: queued/outcome/rules.py; queued/pacing/pace.py (suspensions); queued/destinations/destinations.py (concurrency).
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.outcome.rules import Judgement, judge
from queued.outcome.rules_compile import compile_rules
from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from queued.outcome.rules import Suspension
    from queued.outcome.rules_compile import Said
    from shared.config.queued.rules import ReplyRule
    from shared.mail.outcome import Outcome

    type Suspend = Callable[[Said, Suspension], None]
    type Lower = Callable[[str, str], None]  # transport and destination

_REMEMBERED: Final = 10_000
_AGAIN: Final = 60.0  # seconds at most before a suspension is requested again, so that its end moves on
_AT_ONCE: Final = 1.0  # seconds in which replies of one destination count as one


class Reactions:
    """The rules, and the functions that execute their actions; without rules, outcomes are unchanged."""

    def __init__(
        self, rules: Iterable[ReplyRule] = (), *, suspend: Suspend | None = None, lower: Lower | None = None
    ) -> None:
        """`suspend` and `lower` are called at once and must not wait."""
        self._rules = compile_rules(rules)
        self._suspend = suspend
        self._lower = lower
        self._asked: dict[tuple[str, ...], float] = {}

    def use(self, rules: Iterable[ReplyRule]) -> None:
        """From now on these are the rules."""
        self._rules = compile_rules(rules)

    def judge(self, outcome: Outcome, said: Said) -> Judgement:
        """The rules' decision; their actions on the destination are carried out."""
        if not self._rules:
            return Judgement(outcome)
        try:
            verdict = judge(self._rules, outcome, said)
            if verdict.fired:
                self._carry_out(verdict, said)
        except Exception as error:  # noqa: BLE001 - no rule may cost mail
            events.emit("rules.failed", error=repr(error), reply=said.text, destination=said.destination)
            return Judgement(outcome)
        return verdict

    def _carry_out(self, verdict: Judgement, said: Said) -> None:
        events.emit(
            "rules.fired",
            rules=",".join(verdict.fired),
            transport=said.transport,
            destination=said.destination,
            outcome=verdict.outcome.kind if verdict.held is None else "held",
            reply=said.text,
        )
        if verdict.suspend is not None and self._suspend is not None:
            pause = min(verdict.suspend.seconds / 2, _AGAIN)
            if self._first(("suspend", said.transport, said.destination, verdict.suspend.of), pause):
                self._suspend(said, verdict.suspend)
        if (
            verdict.lower
            and self._lower is not None
            and self._first(("lower", said.transport, said.destination), _AT_ONCE)
        ):
            self._lower(said.transport, said.destination)

    def _first(self, key: tuple[str, ...], seconds: float) -> bool:
        """Whether this was not requested in the last `seconds`."""
        now = monotonic()
        if now < self._asked.get(key, now):
            return False
        if len(self._asked) >= _REMEMBERED:
            self._asked = {kept: until for kept, until in self._asked.items() if until > now}
            if len(self._asked) >= _REMEMBERED:
                self._asked.clear()
        self._asked[key] = now + seconds
        return True


def suspending(suspend: Callable[[dict[str, list[str]], float, str], None]) -> Suspend:
    """The suspension a rule asks for as values by field; one about a site or source that is not known is not made."""

    def made(said: Said, suspension: Suspension) -> None:
        selection = {"transport": said.transport}
        if suspension.of in {"destination", "source"}:
            selection["destination"] = said.destination
        if suspension.of != "destination":
            value = said.site if suspension.of == "site" else said.source
            if value is None:
                return
            selection[suspension.of] = value
        suspend({field: [value] for field, value in selection.items()}, suspension.seconds, suspension.reason)

    return made
