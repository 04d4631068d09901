"""test_partition — golden values: a domain's partition never changes, or another worker would get its mail

Owns: the figures that pin shared/mail/partition.py, made with sha256sum(1) and bc(1), and the same hash in SQL's own
    words.
"""

from __future__ import annotations

import hashlib

import pytest

from shared.mail.domain import comparable
from shared.mail.partition import partition_id

# printf %s DOMAIN | sha256sum: the first eight digits as a number, modulo 6 or 64, plus one.
GOLDEN = [
    ("example.com", "1", "55"),
    ("example.org", "5", "53"),
    ("gmail.com", "3", "9"),
    ("outlook.com", "1", "19"),
    ("xn--mnchen-3ya.example", "5", "3"),
    ("[192.0.2.1]", "3", "61"),
    ("a.b.c.d.example", "1", "63"),
    ("localhost", "4", "38"),
]


@pytest.mark.parametrize(("domain", "of_6", "of_64"), GOLDEN)
def test_partition_ids_have_their_golden_values(domain: str, of_6: str, of_64: str) -> None:
    assert (partition_id(domain, 6), partition_id(domain, 64)) == (of_6, of_64)


def test_the_golden_values_cover_several_partitions() -> None:
    assert len({of_6 for _, of_6, _ in GOLDEN}) > 3
    assert len({of_64 for _, _, of_64 in GOLDEN}) > 6


@pytest.mark.parametrize(
    "other", ["münchen.example", "MÜNCHEN.example", "xn--mnchen-3ya.EXAMPLE", "XN--MNCHEN-3YA.example"]
)
def test_a_domain_in_any_spelling_is_the_same_domain(other: str) -> None:
    assert comparable(other) == "xn--mnchen-3ya.example"
    for count in (6, 64, 1024):
        assert partition_id(other, count) == partition_id("xn--mnchen-3ya.example", count)


@pytest.mark.parametrize(
    "domain",
    ["ü" * 64 + ".example", "a..ü", ".ü", "ü" * 300, "a\u2028ü"],
    ids=["long-label", "empty-label", "leading-dot", "long", "separator"],
)
def test_a_domain_without_a_label_has_a_partition(domain: str) -> None:
    assert partition_id(domain, 6) == partition_id(domain.upper().lower(), 6)
    assert 1 <= int(partition_id(domain, 6)) <= 6


def test_a_single_partition_has_every_domain() -> None:
    assert {partition_id(domain, 1) for domain, _, _ in GOLDEN} == {"1"}


def test_the_text_of_the_promise_is_the_formula() -> None:
    """First four bytes of sha256(domain), big-endian, modulo count, plus one: so that SQL can say the same."""
    number = int(hashlib.sha256(b"example.com").hexdigest()[:8], 16)
    assert partition_id("Example.COM", 1000) == str(number % 1000 + 1)
