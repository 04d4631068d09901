"""test_condition_language — any input is parsed or refused, and a parsed condition can be written and parsed again"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from operate.condition.compile import compiled
from shared.config.condition.fields import FIELDS, STATES
from shared.config.condition.read import read
from shared.config.condition.tree import ConditionError

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)

QUOTED = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12).map(
    lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
)
TEXTS = st.sampled_from(["a", "b.example", "*", "x*", "10%", "_"]) | QUOTED
VALUES = {
    "text": TEXTS,
    "domain": st.sampled_from(["a", "b.example", "*.example", "größe.example", "FAẞ.de", '"x*"', "*ß*"]),
    "address": st.sampled_from(["a@b.example", "@b.example", "*@*.example", "<>"]),
    "number": st.sampled_from(["0", "7", "1..3", "..3", "1.."]),
    "size": st.sampled_from(["0", "10KiB", "1MiB..2MiB", "..512"]),
    "time": st.sampled_from(["2026-11-20", "now", "now-2h", "now-2h..now", "2026-11-20T08:30..", "..now+1d"]),
    "msgid": st.sampled_from(["a@b.example", "<a@b.example>", "*@b.example", '"<a,b*@c>"']),
    "age": st.sampled_from(["1h", "1h..2d", "..90s"]),
    "wait": st.sampled_from(["1h", "0s", "..90s"]),
    "state": st.sampled_from(STATES),
    "uuid": st.uuids().map(str),
}


@st.composite
def terms(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from([*FIELDS, "metadata.campaign"]))
    kind = FIELDS[name].kind if name in FIELDS else "text"
    values = draw(st.lists(VALUES[kind], min_size=1, max_size=3))
    return f"{name}{draw(st.sampled_from(['=', '!=']))}{','.join(values)}"


CONDITIONS = st.recursive(
    terms(),
    lambda inner: (
        st.builds("({}) or {}".format, inner, inner)
        | st.builds("{} {}".format, inner, inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=6,
)
TYPED = st.text() | st.text("abjo=!~<>(),.\"' *19\\", max_size=40) | CONDITIONS


@given(CONDITIONS)
def test_a_written_condition_is_parsed_back_unchanged(condition: str) -> None:
    assert read(str(read(condition))) == read(condition)


@given(TYPED)
@example('"\\')
@example("age > or")
def test_any_input_is_parsed_or_refused(text: str) -> None:
    with suppress(ConditionError):
        read(text)


@given(CONDITIONS)
def test_no_input_text_becomes_sql(condition: str) -> None:
    made = compiled(read(condition), NOW)
    assert made.text % dict.fromkeys(made.values, "%s") is not None
    assert set(made.text) <= set("abcdefghijklmnopqrstuvwxyzACDEFILNORSTUVWYBHKGM0123456789 _.,()'|@<>=->:[]%!*")
