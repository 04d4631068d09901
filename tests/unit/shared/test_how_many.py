"""test_how_many — one thing has the singular, and any other number the plural"""

from __future__ import annotations

import pytest

from shared.how_many import how_many


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("recipient", "recipients"),
        ("matching recipient", "matching recipients"),
        ("address", "addresses"),
        ("try", "tries"),
        ("day", "days"),
        ("leaf", "leaves"),
        ("batch", "batches"),
        ("dead letter", "dead letters"),
    ],
)
def test_the_plural_is_made_by_rule(one: str, many: str) -> None:
    assert [how_many(count, one) for count in (0, 1, 2, 21)] == [f"0 {many}", f"1 {one}", f"2 {many}", f"21 {many}"]


def test_a_verb_agrees_and_a_number_has_its_form() -> None:
    assert how_many(1, "recipient waits", "recipients wait") == "1 recipient waits"
    assert how_many(2, "recipient waits", "recipients wait") == "2 recipients wait"
    assert how_many(1234567, "row", form=",") == "1,234,567 rows"
    assert [how_many(seconds, "second", form="g") for seconds in (0.5, 1.0)] == ["0.5 seconds", "1 second"]
