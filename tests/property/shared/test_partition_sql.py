"""test_partition_sql — SQL and Python agree about a domain's partition and about valid addresses

Owns: the law that mail enqueued inside PostgreSQL meets mail that came over SMTP in one partition.
See: shared/mail/partition.py, shared/mail/address.py; sql/schema/01_setting.sql and 07_enqueue.sql.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shared.mail.address import AddressRefused, parse
from shared.mail.domain import comparable
from shared.mail.partition import partition_id

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

LABEL = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,20}[A-Za-z0-9_])?", fullmatch=True)
DOMAINS = st.lists(LABEL, min_size=1, max_size=4).map(".".join)
ALMOST_ADDRESSES = st.text(
    st.sampled_from('abzAZ09.-_+@"\\ []:!{}()<>,;\r\n\t\x01\x7f\x85\u00e9\u2028\u6f22\U0001f4ee'), max_size=20
)
BETTER_ADDRESSES = st.builds("{}@{}".format, ALMOST_ADDRESSES, DOMAINS) | st.builds("a.b@{}".format, ALMOST_ADDRESSES)
SEVERAL = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@SEVERAL
@given(st.lists(DOMAINS, min_size=50, max_size=60, unique=True), st.integers(1, 1024))
def test_sql_and_python_agree_on_the_partition_of_a_thousand_domains(
    factory: Factory, domains: list[str], count: int
) -> None:
    rows = factory.sql(
        """SELECT pillarbox.partition_id(d, %(count)s) AS partid
             FROM unnest(%(domains)s::text[]) WITH ORDINALITY AS u(d, n) ORDER BY n""",
        domains=domains,
        count=count,
    )
    assert [row.partid for row in rows] == [partition_id(domain, count) for domain in domains]


@pytest.mark.parametrize("domain", ["größe.example", "faß.example", "漢字.example", "Ünïcode.Example"])
def test_sql_refuses_a_u_label_and_agrees_on_its_a_label(factory: Factory, domain: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="not an ASCII domain"):
        factory.one("SELECT pillarbox.partition_id(%(domain)s, 6)", domain=domain)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="A-labels"):
        factory.one("SELECT pillarbox.address_split(%(address)s)", address=f"a@{domain}")
    found = factory.one("SELECT pillarbox.partition_id(%(domain)s, 6)", domain=comparable(domain))
    assert found == partition_id(domain, 6)


@settings(SEVERAL, max_examples=300)
@given(ALMOST_ADDRESSES | BETTER_ADDRESSES)
@example("a@[127.0.0.1]")
@example("a@[IPv6:2001:db8::1]")
@example("a@[ipv6:2001:DB8:0:0:0::1]")
@example("a@[IPv6:::ffff:192.0.2.1]")
@example("a@[IPv6:0:0:0:0:0:FFFF:c000:201]")
@example("a@[IPv6:::192.0.2.1]")
@example("a@[IPv6:::ffff:0:192.0.2.1]")
@example("a@[IPv6:64:ff9b::192.0.2.1]")
@example("a@[IPv6:::1]")
@example("a@[IPv6:::]")
@example("a@[127.0.0.1")
@example("a@[::1]")
@example('"a\\" b"@c.example')
@example('"a"b"@c.example')
@example("a@b.example\n")
@example("x" * 64 + "@b.example")
@example("x" * 65 + "@b.example")
@example("é" * 33 + "@b.example")
@example("a@" + "x" * 64)
def test_sql_and_python_accept_the_same_addresses(factory: Factory, address: str) -> None:
    """Apart from international domains, which only Python can convert; and '' is SQL's null sender."""
    try:
        parsed = parse(address)
        expected: tuple[str | None, str | None] | None = (parsed.localpart, parsed.domain)
        expected = expected if address.rpartition("@")[2].isascii() else None
    except AddressRefused:
        expected = (None, None) if address == "" else None
    try:
        [row] = factory.sql("SELECT * FROM pillarbox.address_split(%(address)s)", address=address)
        found, said = (row.localpart, row.domain), ""
    except psycopg.errors.InvalidParameterValue as error:
        found = None
        said = str(error.diag.message_primary)
    assert found == expected
    assert "\n" not in said  # in the log of the server
