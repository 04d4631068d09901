"""test_partition — every domain has one partition in range, in every spelling

Owns: properties of shared/mail/partition.py.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shared.mail.domain import comparable
from shared.mail.partition import partition_id

COUNTS = st.integers(min_value=1, max_value=1024)
# An address accepted by shared.mail.address has no lone surrogate.
DOMAINS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
LETTERS = st.text("abcdefghijklmnopqrstuvwxyzäöüéñčł0123456789-.", min_size=1, max_size=60)


@given(DOMAINS, COUNTS)
def test_a_partition_id_is_in_range_and_stable(domain: str, count: int) -> None:
    found = partition_id(domain, count)
    assert found == str(int(found))
    assert 1 <= int(found) <= count
    assert partition_id(domain, count) == found


@given(LETTERS, COUNTS)
def test_case_does_not_change_the_partition(domain: str, count: int) -> None:
    assert partition_id(domain.upper(), count) == partition_id(domain.title(), count) == partition_id(domain, count)


@given(DOMAINS)
def test_the_ascii_form_stays_unchanged(domain: str) -> None:
    once = comparable(domain)
    assert not once.isascii() or comparable(once) == once


def test_domains_spread_evenly() -> None:
    """A worker with a third of the partitions should have about a third of the mail."""
    counted = Counter(partition_id(f"customer-{number}.example", 6) for number in range(6000))
    assert len(counted) == 6
    assert all(850 < each < 1150 for each in counted.values())
