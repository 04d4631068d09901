"""test_condition_ids — ids alone name recipients and messages; anything else stays a condition"""

from __future__ import annotations

import pytest

from operate.condition.ids import named

MESSAGE = "01a208cb-b0c8-71f0-b3f8-1a42a9882dd1"


@pytest.mark.parametrize(
    ("words", "condition"),
    [
        (["18"], ["id=18"]),
        (["18", "19"], ["id=18,19"]),
        (["99999999999999999999"], ["id=99999999999999999999"]),
        (["18,19"], ["id=18,19"]),
        ([MESSAGE], [f"message={MESSAGE}"]),
        (["18", MESSAGE], [f"id=18 or message={MESSAGE}"]),
        (["<a@b.example>"], ['msgid="<a@b.example>"']),
        (["<a,b@c>,18", "<d*@e>"], ['id=18 or msgid="<a,b@c>","<d*@e>"']),
        (['<"a"@b>'], [r'msgid="<\"a\"@b>"']),
        (["a@b.example"], ["a@b.example"]),
        (["<>"], ["<>"]),
        (["<a b@c>"], ["<a b@c>"]),
        ([], []),
        (["state=HOLD"], ["state=HOLD"]),
        (["18", "state=HOLD"], ["18", "state=HOLD"]),
        (["18,"], ["18,"]),
        (["\u0661\u0668"], ["\u0661\u0668"]),
        ([MESSAGE[:-1]], [MESSAGE[:-1]]),
    ],
)
def test_only_a_list_of_ids_is_read_as_ids(words: list[str], condition: list[str]) -> None:
    assert named(words) == condition
