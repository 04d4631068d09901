"""test_merged — selections that are merged select the same mail as before

Owns: the property of queued.pacing.match.merged.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queued.pacing.match import Fields, Selection, merged

NAMES = ("a.example", "b.example", ".example", "deep.a.example")
SELECTIONS = st.dictionaries(
    st.sampled_from(["transport", "destination", "tenant"]), st.lists(st.sampled_from(NAMES), max_size=3), max_size=3
)
MAIL = st.builds(
    Fields,
    transport=st.sampled_from(NAMES),
    destination=st.sampled_from(NAMES),
    tenant=st.none() | st.sampled_from(NAMES),
)


@given(st.lists(SELECTIONS, max_size=8), st.integers(1, 4), MAIL)
def test_merged_selections_are_fewer_and_select_the_same_mail(
    selections: list[dict[str, list[str]]], most: int, mail: Fields
) -> None:
    found = list(merged(selections, most))
    wanted = any(Selection(each).fits(mail) for each in selections)
    assert any(Selection(each).fits(mail) for each in found) == wanted
    assert all(len(each.get("destination", ())) <= most for each in found)
    unlike = {str(sorted((k, v) for k, v in each.items() if v and k != "destination")) for each in selections}
    assert len(list(merged(selections, 100))) <= 2 * len(unlike)
