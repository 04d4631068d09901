"""test_mta_sts — a domain's policy is parsed by RFC 8461, and no published text does harm"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queued.tls.mta_sts import LONGEST, StsPolicy, names_host, read_policy, read_record
from tests.fixtures.processor import least_seconds

LABELS: Final = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
HOSTS: Final = st.tuples(LABELS, LABELS, st.sampled_from(["test", "example"])).map(".".join)  # no addresses
PATTERNS: Final = st.one_of(HOSTS, HOSTS.map("*.{}".format))
MODES: Final = st.sampled_from(["enforce", "testing", "none"])
POLICIES: Final = st.builds(
    StsPolicy, MODES, st.integers(0, 31_557_600), st.lists(PATTERNS, min_size=1, max_size=5).map(tuple)
)
NOISE: Final = st.sampled_from(["extension: x y", "x_1:", "", "  "])


def written(policy: StsPolicy, end: str = "\r\n", extra: tuple[str, ...] = ()) -> bytes:
    """The file of a policy."""
    fields = ["version: STSv1", f"mode: {policy.mode}", *(f"mx: {host}" for host in policy.hosts)]
    return end.join([*fields, *extra, f"max_age: {policy.max_age}", ""]).encode()


@given(POLICIES, st.sampled_from(["\r\n", "\n"]), st.lists(NOISE, max_size=3).map(tuple))
def test_a_policy_is_read_as_it_was_written(policy: StsPolicy, end: str, extra: tuple[str, ...]) -> None:
    assert read_policy(written(policy, end, extra)) == policy


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode) | POLICIES.map(written))
def test_any_octets_are_parsed_or_refused(octets: bytes) -> None:
    policy = read_policy(octets)
    if policy is not None:
        assert policy.mode in {"enforce", "testing", "none"}
        assert 0 <= policy.max_age <= 31_557_600
        assert read_policy(written(policy)) in {policy, None if not policy.hosts else policy}


@given(POLICIES, st.data())
def test_a_truncated_policy_is_never_weaker(policy: StsPolicy, data: st.DataObject) -> None:
    octets = written(policy)
    cut = read_policy(octets[: data.draw(st.integers(0, len(octets) - 1))])
    # max_age is last: truncated, it is shorter or missing; mode and hosts are whole.
    assert cut is None or (cut.mode == policy.mode and cut.hosts == policy.hosts and cut.max_age <= policy.max_age)


@given(HOSTS, LABELS)
def test_a_wildcard_is_one_label(host: str, label: str) -> None:
    policy = StsPolicy("enforce", 1, (f"*.{host}",))
    assert names_host(policy, f"{label}.{host}")
    assert names_host(policy, f"{label}.{host}.".upper())
    assert not names_host(policy, host)
    assert not names_host(policy, f"{label}.{label}.{host}")


@given(st.lists(st.text(max_size=80), max_size=4))
def test_any_records_are_parsed_or_ignored(texts: list[str]) -> None:
    ident = read_record(texts)
    assert ident is None or (ident.isascii() and ident.isalnum())


@pytest.mark.parametrize(
    ("texts", "ident"),
    [
        (["v=STSv1; id=20160831085700Z;"], "20160831085700Z"),
        (["v=STSv1;id=1"], "1"),
        (["v=spf1 -all", "v=STSv1; other=x; id=2; more=y"], "2"),
        (["v=STSv1; id=1;", "v=STSv1; id=2;"], None),  # RFC 8461 section 3.1: as if there were none
        (["v=STSv1; id=1;", "v=STSv10; id=2;"], "1"),  # records that begin otherwise are discarded first
        (["v=STSv1; id=a-b"], None),
        (["v=STSv1"], None),
        (["v=STSv2; id=1"], None),
        (["v=STSv1; id=" + "a" * 33], None),
        ([], None),
    ],
)
def test_a_record_announces_an_id(texts: list[str], ident: str | None) -> None:
    assert read_record(texts) == ident


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"version: STSv2\nmode: enforce\nmx: a.test\nmax_age: 1\n",
        b"version: STSv1\nmode: maybe\nmx: a.test\nmax_age: 1\n",
        b"version: STSv1\nmode: enforce\nmax_age: 1\n",  # no host
        b"version: STSv1\nmode: enforce\nmx: a.test\n",
        b"version: STSv1\nmode: enforce\nmx: a.test\nmax_age: 31557601\n",
        b"version: STSv1\nmode: enforce\nmx: a b.test\nmax_age: 1\n",
        b"version: STSv1\nmode: enforce\nmx: *.*.test\nmax_age: 1\n",
        b"version: STSv1\nmode: enforce\nmx: a.test\nmax_age: -1\n",
        b"<html>\n",
        b"version: STSv1\nmode: none\nmax_age: 1\n" + b"\n" * LONGEST,
    ],
)
def test_an_invalid_policy_is_refused(octets: bytes) -> None:
    assert read_policy(octets) is None


def test_a_policy_of_mode_none_needs_no_hosts() -> None:
    assert read_policy(b"version: STSv1\nmode: none\nmax_age: 86400\n") == StsPolicy("none", 86400, ())


def test_every_policy_is_parsed_in_bounded_time() -> None:
    text = b"version: STSv1\nnote:x" + b" " * (LONGEST - 100) + b"y\n"
    assert least_seconds(lambda: read_policy(text)) < 1.0  # 27 s, while a pattern sought blanks at the end


@pytest.mark.parametrize(("hosts", "length", "policy"), [(100, 40, True), (101, 1, False), (70, 60, False)])
def test_the_number_of_hosts_in_a_policy_is_bounded(hosts: int, length: int, *, policy: bool) -> None:
    """Ten thousand policies are kept, and a file may have 64 KiB."""
    octets = written(StsPolicy("enforce", 86400, ("x" * length,) * hosts))
    assert (read_policy(octets) is not None) == policy
