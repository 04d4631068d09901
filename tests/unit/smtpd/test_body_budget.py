"""test_body_budget — held memory is accounted for, and released once

Owns: examples for smtpd/session/body_budget.py; tests/integration/attacks/test_memory.py has the whole.
"""

from __future__ import annotations

import tracemalloc

import pytest

from smtpd.session.body_budget import STEP, BodyBudget, Content


def test_small_content_reserves_one_step_without_a_copy() -> None:
    budget = BodyBudget(10 * STEP)
    content = Content(budget, STEP)
    octets = b"x" * 100
    content.add(octets)
    assert content.octets() is octets
    assert budget.used == STEP
    content.close()
    content.close()
    assert budget.used == 0


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_blocks_are_joined_into_one_content(count: int) -> None:
    content = Content(BodyBudget(1 << 24), 1 << 24)
    for number in range(count):
        content.add(b"%07d" % number * 2000)
    assert content.octets() == b"".join(b"%07d" % number * 2000 for number in range(count))
    assert content.size == 14_000 * count


def test_content_over_the_limit_is_released() -> None:
    budget = BodyBudget(1 << 20)
    content = Content(budget, 10)
    content.add(b"x" * 10)
    assert content.octets() == b"x" * 10
    content.add(b"x")
    assert str(content.refused).startswith("552")
    assert (budget.used, content.octets()) == (0, b"")
    content.add(b"x" * 1000)
    assert (budget.used, content.size) == (0, 1011)


def test_content_over_the_budget_is_released_with_the_first_reason() -> None:
    budget = BodyBudget(2 * STEP)
    first, second = Content(budget, 1 << 20), Content(budget, 1 << 20)
    first.add(b"x")
    second.add(b"x" * STEP)
    second.add(b"x")
    assert second.refused is not None
    assert second.refused.startswith("452 4.3.1")
    second.add(b"x" * (1 << 20))
    assert second.refused.startswith("452 4.3.1")
    assert budget.used == STEP


def test_checking_for_space_reserves_none() -> None:
    budget = BodyBudget(4 * STEP)
    assert budget.fits(4 * STEP)
    assert not budget.fits(4 * STEP + 1)
    assert budget.used == 0
    content = Content(budget, 1 << 20)
    for steps in (1, 2, 3):
        content.add(b"x" * STEP)
        assert budget.used == steps * STEP
    assert budget.fits(STEP)
    assert not budget.fits(STEP + 1)


@pytest.mark.parametrize("size", [1, 2, 100, 4095, 4096])
def test_small_pieces_take_little_more_memory_than_they_are(size: int) -> None:
    """One that sends a message by BDAT 2 must not make 2 octets take 40."""
    octets = 1_000_000
    content = Content(BodyBudget(1 << 24), 1 << 24)
    tracemalloc.start()
    try:
        for number in range(octets // size):
            content.add(b"%d" % (number % 10) * size)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert content.size <= held < 1.2 * octets
    assert len(content.octets()) == content.size


def test_content_that_is_read_takes_no_more_memory_than_its_size() -> None:
    content = Content(BodyBudget(1 << 24), 1 << 24)
    tracemalloc.start()
    try:
        for _ in range(48):
            content.add(bytes(STEP))
        octets = content.octets()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(octets) == 48 * STEP
    assert held < 1.1 * len(octets), "the pieces are beside it"
    assert content.octets() is octets


def test_pieces_of_all_sizes_keep_their_order() -> None:
    sizes = [0, 1, 5000, 2, 3, 4096, 0, 4, 70_000, 5]
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    content = Content(BodyBudget(1 << 24), 1 << 24)
    for piece in pieces:
        content.add(piece)
    assert content.octets() == b"".join(pieces)
    assert isinstance(content.octets(), bytes)
