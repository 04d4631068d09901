"""conditions — each condition of a rule as a function of facts

Owns: compiling the section `if`: one predicate for each key, cheapest first, with the reason why it failed.
Guarantees: an unknown fact matches nothing. A rate is checked last, so that it counts only mail that matches the rest.
See: docs/reference/policy.md; shared/config/smtpd/policy_condition.py
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.patterns import matcher
from smtpd.policy.decision import Membership, Rate
from smtpd.policy.facts import known_mailbox, known_name
from smtpd.policy.lists import Domains, FileList, Networks
from smtpd.policy.texts import COMPARED, COUNTED, READ, one_line
from smtpd.policy.times import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shared.config.smtpd.policy_condition import Condition, ListCondition, RateCondition
    from shared.config.smtpd.policy_fields import Comparison
    from smtpd.policy.decision import Known
    from smtpd.policy.facts import Facts
    from smtpd.policy.lists import QueryList

    type Test = Callable[[Facts, Known], bool]
    type Lists = Mapping[str, FileList | QueryList]

_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
_SHOWN: Final = 60  # characters of a value in an explanation


class Predicate(NamedTuple):
    """One condition: `cost` orders it (0 plain, 1 a query or the check, 2 a rate), `is_` tells what the fact is."""

    key: str
    cost: int
    test: Test
    is_: Callable[[Facts], str]

    def because(self, facts: Facts) -> str:
        """Why it failed."""
        return f"{self.key}: {self.is_(facts)}"


def predicates(condition: Condition, rule: str, lists: Lists) -> tuple[Predicate, ...]:
    """All predicates of a condition, cheapest first. `rule` names its rates."""
    return tuple(sorted(_predicates(condition, rule, lists), key=lambda predicate: predicate.cost))


def _predicates(c: Condition, rule: str, lists: Lists) -> Iterator[Predicate]:
    yield from _of_client(c)
    yield from _of_envelope(c)
    yield from _of_content(c)
    if c.time:
        spans = c.time
        yield Predicate("time", 0, lambda f, _: within(f.now, spans), lambda f: f"{f.now:%a %H:%M %Z} is outside")
    if c.inlist is not None:
        yield _in(c.inlist, lists)
    if c.rate is not None:
        yield _rate(c.rate, rule)
    yield from _nested(c, rule, lists)


def _of_client(c: Condition) -> Iterator[Predicate]:
    if c.client:
        networks = Networks(c.client)
        yield Predicate("client", 0, lambda f, _: f.client_bits in networks, _word("client"))
    if c.clientname:
        names = Domains(c.clientname)
        yield Predicate("clientname", 0, lambda f, _: known_name(f.clientname or "") in names, _word("clientname"))
    if c.helo:
        matchers = [matcher(pattern) for pattern in c.helo]

        def named(facts: Facts, _: Known) -> bool:
            said = facts.helo
            # A pattern may ask for the trailing dot; one that does not finds the name with it as well.
            return said is not None and any(m(name) for name in {said, said.removesuffix(".")} for m in matchers)

        yield Predicate("helo", 0, named, _word("helo"))
    if c.user:
        users = frozenset(c.user)
        yield Predicate("user", 0, lambda f, _: f.user in users, _word("user"))
    if c.authenticated is not None:
        wanted = c.authenticated
        yield Predicate("authenticated", 0, lambda f, _: (f.user is not None) is wanted, _word("user"))
    if c.tls is not None:
        under = c.tls
        yield Predicate("tls", 0, lambda f, _: f.tls is under, lambda f: str(f.tls).lower())
    if c.tlsversion is not None:
        least = f"TLSv{c.tlsversion}"  # TLSv1 sorts before TLSv1.2 before TLSv1.3
        yield Predicate("tlsversion", 0, lambda f, _: (f.tlsversion or "") >= least, lambda f: f.tlsversion or "no TLS")
    if c.tlsverified is not None:
        verified = c.tlsverified
        yield Predicate("tlsverified", 0, lambda f, _: f.tlsverified is verified, lambda f: str(f.tlsverified).lower())


def _of_envelope(c: Condition) -> Iterator[Predicate]:
    if c.sender:
        senders = frozenset(known_mailbox(sender) for sender in c.sender)
        yield Predicate("sender", 0, lambda f, _: f.sender_compared in senders, _word("sender"))
    if c.senderdomain:
        senderdomains = Domains(c.senderdomain)
        yield Predicate(
            "senderdomain", 0, lambda f, _: senderdomains.have(f.sender_domain, f.sender_parents), _word("senderdomain")
        )
    if c.recipient:
        recipients = frozenset(known_mailbox(recipient) for recipient in c.recipient)
        yield Predicate("recipient", 0, lambda f, _: f.recipient_compared in recipients, _word("recipient"))
    if c.recipientdomain:
        domains = Domains(c.recipientdomain)
        yield Predicate(
            "recipientdomain",
            0,
            lambda f, _: domains.have(f.recipient_domain, f.recipient_parents),
            _word("recipientdomain"),
        )
    if c.recipients is not None:
        compare, number = _sign(c.recipients)
        yield Predicate("recipients", 0, lambda f, _: compare(f.recipients, number), lambda f: str(f.recipients))
    if c.size is not None:
        than, size = _sign(c.size)
        yield Predicate(
            "size", 0, lambda f, _: f.size is not None and than(f.size, size), lambda f: f"{f.size or 'not declared'}"
        )


def _of_content(c: Condition) -> Iterator[Predicate]:
    for name, patterns in c.header.items():
        yield _header(name, [matcher(pattern) for pattern in patterns])
    if c.score is not None:
        compare, value = _sign(c.score)

        def scored(_: Facts, known: Known) -> bool:
            result = known.checked()
            return result is not None and compare(result.score, value)

        yield Predicate("score", 1, scored, lambda _: f"not {c.score}")
    if c.symbols:
        wanted = [matcher(pattern) for pattern in c.symbols]

        def named(_: Facts, known: Known) -> bool:
            result = known.checked()
            return result is not None and any(m(symbol) for symbol in result.symbols for m in wanted)

        yield Predicate("symbols", 1, named, lambda _: "none of them")


def _header(name: str, matchers: list[Callable[[str], bool]]) -> Predicate:
    def test(facts: Facts, _: Known) -> bool:
        return facts.headers is not None and any(m(value) for value in facts.headers.values(name) for m in matchers)

    def is_(facts: Facts) -> str:
        return _shown(facts.headers.first(name) if facts.headers is not None else None)

    return Predicate(f"header {name}", 0, test, is_)


def _in(c: ListCondition, lists: Lists) -> Predicate:
    wanted, read, of = lists[c.list], COMPARED[c.of], c.of
    key = f"in {c.list}"
    if isinstance(wanted, FileList):

        def in_file(facts: Facts, _: Known) -> bool:
            value = read(facts)
            return bool(value) and wanted.entries.has(of, value or "")

        return Predicate(key, 0, in_file, _word(of))

    def in_query(facts: Facts, known: Known) -> bool:
        value = read(facts)
        return bool(value) and known.holds(Membership(wanted.id, value or ""))

    return Predicate(key, 1, in_query, _word(of))


def _rate(c: RateCondition, rule: str) -> Predicate:
    reads = [COUNTED[subject] for subject in c.key]
    limit, seconds = c.over

    def over(facts: Facts, known: Known) -> bool:
        key = tuple(read(facts) or "" for read in reads)
        return known.holds(Rate(rule, key, limit, seconds))

    return Predicate("rate", 2, over, lambda _: f"not over {c.over}")


def _nested(c: Condition, rule: str, lists: Lists) -> Iterator[Predicate]:
    if c.unless is not None:
        inner = predicates(c.unless, f"{rule}/not", lists)
        yield Predicate("not", _cost(inner), lambda f, k: not _all(inner, f, k), lambda _: "its inner conditions match")
    if c.any:
        choices = [predicates(each, f"{rule}/any{index}", lists) for index, each in enumerate(c.any)]
        choices.sort(key=_cost)
        cost = max(_cost(choice) for choice in choices)
        yield Predicate("any", cost, lambda f, k: any(_all(each, f, k) for each in choices), lambda _: "none matches")
    for index, each in enumerate(c.all):
        yield from predicates(each, f"{rule}/all{index}", lists)


def _all(inner: tuple[Predicate, ...], facts: Facts, known: Known) -> bool:
    return all(predicate.test(facts, known) for predicate in inner)


def _cost(inner: tuple[Predicate, ...]) -> int:
    return max((predicate.cost for predicate in inner), default=0)


def _sign(comparison: Comparison) -> tuple[Callable[[float, float], bool], float]:
    return _SIGNS[comparison.sign], comparison.value


def _word(name: str) -> Callable[[Facts], str]:
    read = READ[name]
    return lambda facts: _shown(read(facts))


def _shown(value: str | None) -> str:
    if value is None:
        return "none"
    short = one_line(value)
    return f'"{short if len(short) <= _SHOWN else short[: _SHOWN - 1] + "…"}"'
