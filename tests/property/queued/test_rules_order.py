"""test_rules_order — any rules decide as if read in order"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queued.outcome.classify import classify_reply
from queued.outcome.rules import judge, said_by
from queued.outcome.rules_compile import compile_rules
from shared.config.queued.rules import ReplyRule
from shared.mail.smtp_reply import Reply

FATES = st.sampled_from([{}, {"defer": "1h"}, {"bounce": "no"}, {"hold": "q"}])
RULES = st.builds(
    lambda code, tries, fate, suspend, lower: {
        "if": {"code": [code], "tries": f">={tries}"},
        **fate,
        **({"suspend": "1h"} if suspend or not (fate or lower) else {}),
        **({"concurrency": "lower"} if lower else {}),
    },
    st.sampled_from(["421", "4xx", "45x", "550", "5xx"]),
    st.integers(1, 3),
    FATES,
    st.booleans(),
    st.booleans(),
)


def matches(rule: dict[str, Any], code: int, tries: int) -> bool:
    """The meaning of the condition, computed independently."""
    wanted, least = rule["if"]["code"][0], int(rule["if"]["tries"][2:])
    return all(w in ("x", c) for w, c in zip(wanted, str(code), strict=True)) and tries >= least


@given(
    written=st.lists(RULES, max_size=6),
    code=st.sampled_from([250, 421, 450, 452, 550, 554]),
    tries=st.integers(1, 3),
)
def test_rules_decide_as_if_read_in_order(written: list[dict[str, Any]], code: int, tries: int) -> None:
    rules = [ReplyRule.model_validate({"id": f"r{n}", **each}) for n, each in enumerate(written)]
    outcome = classify_reply(Reply.make(code, None, "said"), "dot")
    said = said_by(outcome, destination="example.com", transport="default", tries=tries)
    verdict = judge(compile_rules(rules), outcome, said)
    matching = [each for each in written if matches(each, code, tries)] if outcome.kind != "delivered" else []
    fate = next((each for each in matching if each.keys() & {"defer", "bounce", "hold"}), {})
    assert (verdict.wait is not None) == ("defer" in fate)
    assert (verdict.held is not None) == ("hold" in fate)
    if "bounce" in fate:
        assert verdict.outcome.kind == "failed"
    elif "defer" in fate:
        assert verdict.outcome.kind == "deferred"
    else:
        assert verdict.outcome == outcome
    assert (verdict.suspend is not None) == any("suspend" in each for each in matching)
    assert verdict.lower == any("concurrency" in each for each in matching)
    assert bool(verdict.fired) == bool(matching)
