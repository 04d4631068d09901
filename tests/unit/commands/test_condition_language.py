"""test_condition_language — the meaning of a condition, and the position of a syntax error"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from operate.condition.compile import compiled
from shared.config.condition.fields import ALIASES, FIELDS, find
from shared.config.condition.read import read
from shared.config.condition.tree import All, ConditionError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("condition", "text", "values"),
    [
        ("state=HOLD", "(q.status = 'HOLD')", [NOW]),
        ("STATUS=hold", "(q.status = 'HOLD')", [NOW]),
        ("recipientdomain=Example.COM", "q.recipientdomain = ANY (%(c0)s::text[])", [["example.com"]]),
        ("domain=*.example.com", "(q.recipientdomain LIKE %(c0)s::text)", ["%.example.com"]),
        ('domain="*.example.com"', "q.recipientdomain = ANY (%(c0)s::text[])", [["*.example.com"]]),
        # Rows queued before domains were normalised may have U-labels.
        (
            "domain=GRÖßE.example",
            "q.recipientdomain = ANY (%(c0)s::text[])",
            [["xn--gre-6ka8i.example", "größe.example"]],
        ),
        (
            "domain=*.xn--gre-6ka8i.example",
            "(q.recipientdomain LIKE %(c0)s::text OR q.recipientdomain LIKE %(c1)s::text)",
            ["%.xn--gre-6ka8i.example", "%.größe.example"],
        ),
        (
            "to=@größe.example",
            "((q.recipientdomain = ANY (%(c0)s::text[])))",
            [["xn--gre-6ka8i.example", "größe.example"]],
        ),
        ("age>1h", "(q.ts < %(c0)s::timestamptz)", [NOW - timedelta(hours=1)]),
        (
            "age=1h..2h",
            "((q.ts <= %(c0)s::timestamptz AND q.ts >= %(c1)s::timestamptz))",
            [NOW - timedelta(hours=1), NOW - timedelta(hours=2)],
        ),
        ("wait>10m", "(q.next_retry > %(c0)s::timestamptz)", [NOW + timedelta(minutes=10)]),
        ("tries=3..10", "((q.retry_count >= %(c0)s::bigint AND q.retry_count <= %(c1)s::bigint))", [3, 10]),
        ("tries=..10", "((q.retry_count <= %(c0)s::bigint))", [10]),
        ("size>=25MiB", "(q.size >= %(c0)s::bigint)", [25 * 2**20]),
        ("metadata.campaign=x", "(q.metadata->>%(c0)s::text) = ANY (%(c1)s::text[])", ["campaign", ["x"]]),
        ("jobid=", "(q.jobid IS NULL)", []),
        (
            "last_error~50%_off",
            "(pillarbox.lowered(q.last_error) LIKE pillarbox.lowered(%(c0)s::text))",
            [r"%50\%\_off%"],
        ),
        ("quarantine!=poison", "(q.metadata->>'_quarantineid' = ANY (%(c0)s::text[])) IS NOT TRUE", [["poison"]]),
        ("sender=<>", "(q.senderdomain IS NULL)", []),
        (
            "to=Ann@Example.com",
            "((q.recipientlocalpart = %(c0)s::text AND q.recipientdomain = %(c1)s::text))",
            ["Ann", "example.com"],
        ),
        ("from=@example.com", "((q.senderdomain = %(c0)s::text))", ["example.com"]),
        (
            "ts=2026-11-20",
            "((q.ts >= %(c0)s::timestamptz AND q.ts <= %(c1)s::timestamptz))",
            [datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 20, 23, 59, 59, 999999, UTC)],
        ),
        ("ts>2026-11-20T08:30+02:00", "(q.ts > %(c0)s::timestamptz)", [datetime(2026, 11, 20, 6, 30, tzinfo=UTC)]),
        ("jobid=a or jobid=b tries=1", None, [["a"], ["b"], [1]]),
        ("", "true", []),
    ],
)
def test_a_condition_compiles_to_sql_with_bound_values(condition: str, text: str | None, values: list[object]) -> None:
    found = compiled(read(condition), NOW)
    assert text is None or found.text == text
    assert list(found.values.values()) == values


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("jobid=a jobid=b", "jobid=a and jobid=b"),
        ("age > 1h jobid = a, b", "age>1h jobid=a,b"),
        ("jobid=a or jobid=b tries=1", "jobid=a or (jobid=b and tries=1)"),
        ("not jobid=a tries=1", "(not jobid=a) and tries=1"),
        ('"last_error~try later"', 'last_error~"try later"'),
        ('last_error= "try later"', 'last_error="try later"'),
        ("NOT (jobid=a OR jobid=b)", "not (jobid=a or jobid=b)"),
    ],
)
def test_two_ways_to_write_one_condition(one: str, same: str) -> None:
    assert read(one) == read(same)


def test_quoted_arguments_keep_their_spaces() -> None:
    assert read(["state=HOLD", "last_error~try later"]) == read('state=HOLD last_error~"try later"')
    assert read(["state=HOLD jobid=a"]) == read("state=HOLD jobid=a")
    assert read([]) == All()


@pytest.mark.parametrize("word", ['last_error~"try later', "last_error~'try later", '"last_error~try later'])
def test_quotes_within_a_word_of_the_shell_must_be_closed(word: str) -> None:
    with pytest.raises(ConditionError, match="these quotes are never closed"):
        read([word])


@pytest.mark.parametrize(
    ("condition", "at", "reason"),
    [
        ("stat=HOLD", 0, "unknown field stat; did you mean state?"),
        ("jobid=a stat=HOLD", 8, "unknown field stat"),
        ("state=HLD", 6, 'state "HLD" does not exist, did you mean HOLD; allowed: ACTIVE'),
        ("retry_count=10..3", 12, '"10..3" is empty'),
        ("priority=12", 9, "12 is not between -9 and 9"),
        ("age>soon", 4, '"soon" is not a duration'),
        ("age>2", 4, '"2" has no unit; allowed: whole numbers with d, h, m, s or ms in that order (90s, 1h30m)'),
        ("wait=10s..60", 5, '"60" has no unit'),
        ("ts>now-90", 3, '"90" has no unit'),
        ("ts>yesterday", 3, '"yesterday" is not a time'),
        ("id=x", 3, '"x" is not a valid number'),
        ("message=17", 8, '"17" is not a message id'),
        ("recipient=ann", 10, '"ann" is not an address'),
        ("size=..", 5, "a range has at least one end"),
        ("size>1..2", 5, "takes one value"),
        ("tries~3", 6, "~ needs a text field, in which it searches for text"),
        ("jobid>a", 6, "> compares numbers"),
        ("age>", 4, "a value is missing"),
        ("state=", 6, "it is always set"),
        ("jobid", 5, "an operator was expected"),
        ("(jobid=a", 0, "never closed"),
        ("jobid=a)", 7, "without an opening one"),
        ('jobid="a', 6, "quotes are never closed"),
        ("metadata._partit=5", 0, "; did you mean _partid?"),
        ("metadata._x=5", 0, "metadata has no key _x; allowed: _"),
        ("you@example.org", 0, "an address alone; allowed: recipient=you@example.org or sender=you@example.org"),
        ("state=HOLD you@example.org", 11, "an address alone; allowed: recipient=you@example.org"),
        ("example.org", 0, "a domain alone; allowed: recipientdomain=example.org or senderdomain=example.org"),
        ("jobid=a or", 10, "a term was expected"),
        ("jobid=a,", 8, "a value was expected"),
        ("=a", 0, "a term was expected"),
        ("recipientdomain==example.com", 16, "after = a value was expected"),
        ("last_error=~greylist", 11, "quotes around a value that begins with ~"),
        ('"just text"', 1, "a whole term was expected"),
    ],
)
def test_a_typo_is_pointed_at(condition: str, at: int, reason: str) -> None:
    with pytest.raises(ConditionError) as caught:
        read(condition)
    assert reason in caught.value.reason
    assert caught.value.at == at
    shown, caret = str(caught.value).splitlines()[-2:]
    assert (shown[2:], caret[2:]) == (condition, " " * at + "^")


def test_a_long_condition_is_shown_around_its_error() -> None:
    with pytest.raises(ConditionError) as caught:
        read("jobid=a " * 50 + "stat=HOLD" + " jobid=b" * 50)
    shown, caret = str(caught.value).splitlines()[-2:]
    assert shown[caret.index("^") :].startswith("stat=HOLD")
    assert len(shown) < 120


def test_a_condition_that_is_too_large_is_refused() -> None:
    for condition in ("jobid=" + "a" * 10_001, "(" * 60 + "jobid=a" + ")" * 60, "id=" + ",".join(["1"] * 1001)):
        with pytest.raises(ConditionError):
            read(condition)


def test_every_alias_names_a_field() -> None:
    assert [alias for alias in ALIASES if find(alias) not in FIELDS.values()] == []
    assert set(ALIASES).isdisjoint(FIELDS)
