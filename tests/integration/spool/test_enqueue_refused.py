"""test_enqueue_refused — enqueue refuses text that another program could interpret as something else

Owns: proofs that CR, LF, NUL and other control characters are refused in every envelope field, whichever way they come
    in, and that content and times are sound.
See: RFC 5321 section 4.1.2; tests/integration/schema/test_roles_refused.py for the rights of roles.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

FIELDS = (
    *("senderlocalpart", "senderdomain", "recipientlocalpart", "recipientdomain"),
    *("senderhelo", "saslusername"),
)
CONTROLS = ("\r", "\n", "\r\n", "\t", "\x7f")
# A text cannot hold NUL at all: PostgreSQL refuses it before anything of ours is asked.
REFUSED = (psycopg.errors.CheckViolation, psycopg.errors.InvalidParameterValue)
NUL = psycopg.errors.CharacterNotInRepertoire
COLUMNS = ("messages__id", *FIELDS)


def envelope(field: str, value: str) -> dict[str, Any]:
    """An envelope, sound but for one field."""
    return {
        "senderlocalpart": "s",
        "senderdomain": "sender.example",
        "recipientlocalpart": "r",
        "recipientdomain": "example.com",
        "senderhelo": "client.example",
        "saslusername": "ann",
        field: value,
    }


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("address", ["a{}b@example.com", "a@exam{}ple.com", '"a{}b"@example.com', "a@example.com{}"])
def test_enqueue_refuses_control_characters(factory: Factory, address: str, control: str) -> None:
    bad = address.format(control)
    for sender, recipients in ((bad, ["r@example.com"]), ("", ["r@example.com", bad])):
        with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
            factory.sql("SELECT pillarbox.enqueue(%(s)s, %(r)s, 'x')", s=sender, r=recipients)
        assert len(str(refused.value.diag.message_primary).splitlines()) == 1  # one line in the server's log
    for field in ("transportid", "jobid"):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            factory.sql(f"SELECT pillarbox.enqueue('', ARRAY['r@example.com'], 'x', {field} => %(v)s)", v=control)
    assert factory.bodies() == {}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("table", ["queue", "queue_def_def"])
def test_rows_with_control_characters_are_refused(factory: Factory, table: str, field: str) -> None:
    message = factory.message()
    id_ = factory.row(message=message, partid=None)
    places = ", ".join(f"%({name})s" for name in COLUMNS)
    insert = f"INSERT INTO {{table}} ({', '.join(COLUMNS)}) VALUES ({places})"  # noqa: S608 - names from the list above
    update = f"UPDATE {{table}} SET {field} = %(v)s WHERE id = %(id)s"  # noqa: S608 - as above
    for control in CONTROLS:
        values = {"messages__id": message, **envelope(field, f"a{control}b")}
        with pytest.raises(psycopg.errors.CheckViolation, match="envelope_text"):
            factory.on(table, insert, **values)
        with pytest.raises(psycopg.errors.CheckViolation, match="envelope_text"):
            factory.on(table, update, v=f"a{control}b", id=id_)
        with pytest.raises(psycopg.errors.CheckViolation, match="envelope_text"):
            copy(factory.uri, table, values)
    with pytest.raises(NUL):
        factory.on(table, update.replace("%(v)s", "convert_from('\\x6100'::bytea, 'UTF8')"), id=id_)
    assert len(factory.queue()) == 1


@pytest.mark.parametrize("field", FIELDS)
def test_control_characters_are_refused_with_the_rights_of_smtpd(factory: Factory, logins: Logins, field: str) -> None:
    message = factory.message()
    uri = logins.uri("smtpd")
    for control in CONTROLS:
        with pytest.raises(psycopg.errors.CheckViolation, match="envelope_text"):
            copy(uri, "queue", {"messages__id": message, **envelope(field, f"a{control}b")})
    with pytest.raises(NUL):
        copy(uri, "queue", {"messages__id": message, **envelope(field, "a\\000b")}, raw=True)
    copy(uri, "queue", {"messages__id": message, **envelope(field, "sound.example")})
    assert len(factory.queue()) == 1


@pytest.mark.parametrize(
    "content",
    [b"a\nb", b"a\rb", b"a\r\n\nb", b"\r\r\n", b"a\r\nb\r", b"\n", b"nul \x00 inside\r\n", None],
)
def test_content_that_smtp_cannot_carry_is_refused(factory: Factory, content: bytes | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="CR LF"):
        factory.sql("SELECT pillarbox.enqueue('', ARRAY['r@example.com'], %(c)s::bytea)", c=content)
    assert factory.bodies() == {}


@pytest.mark.parametrize(
    "content",
    [b"", b"no end of line", b"a\r\n\r\nb\r\n", b"\\015\\012 \\r\\n\r\n", bytes(range(128, 256)), b"\x01\x7f"],
)
def test_any_other_content_is_kept_octet_for_octet(factory: Factory, content: bytes) -> None:
    message = factory.one("SELECT pillarbox.enqueue('', ARRAY['r@example.com'], %(c)s::bytea)", c=content)
    assert factory.bodies()[message].content == content


@pytest.mark.parametrize(
    "arguments",
    [
        "'', '{}', 'x'",
        "'', NULL, 'x'",
        "'', ARRAY[NULL], 'x'",
        "'', ARRAY[''], 'x'",
        "NULL, ARRAY['r@example.com'], 'x'",
        "'nobody', ARRAY['r@example.com'], 'x'",
        "'<a@b.example>', ARRAY['r@example.com'], 'x'",
        "'', ARRAY['r@example.com', 'größe@größe.example'], 'x'",
        "'', ARRAY['r@example.com'], 'x', metadata => '[]'",
        "'', ARRAY['r@example.com'], 'x', metadata => '{\"_partid\": \"1\"}'",
        "'', ARRAY['r@example.com'], 'x', metadata => '{\"_quarantineid\": \"poison\"}'",
        "'', ARRAY['r@example.com'], 'x', ''",
        "'', ARRAY['r@example.com'], 'x', repeat('k', 256)",
        "'', ARRAY['r@example.com'], 'x', priority => 10",
        "'', ARRAY['r@example.com'], 'x', priority => -10",
    ],
)
def test_invalid_arguments_are_refused(factory: Factory, arguments: str) -> None:
    with pytest.raises(REFUSED):
        factory.sql(f"SELECT pillarbox.enqueue({arguments})")
    assert (factory.queue(), factory.bodies()) == ([], {})


@pytest.mark.parametrize(
    "metadata",
    [
        '{"a": 1e301}',
        '{"a": [{"b": -1e5000}]}',
        '{"a": ' + "[" * 32 + "]" * 32 + "}",
        '{"a": ' + "[" * 6000 + "]" * 6000 + "}",
        '{"a": "' + "x" * 65536 + '"}',
    ],
    ids=["large", "small", "deep", "very deep", "long"],
)
def test_metadata_that_is_large_in_any_way_is_refused(factory: Factory, metadata: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="metadata may have 64 KiB as text"):
        factory.sql("SELECT pillarbox.enqueue('', ARRAY['r@example.com'], 'x', metadata => %(m)s::jsonb)", m=metadata)


def test_metadata_up_to_the_limits_and_a_long_jobid_are_kept(factory: Factory) -> None:
    metadata = {"deep": [[[[[10**300, {"-1e9999": "1e9999"}]]]]], "long": "x" * 60_000}
    factory.sql(
        "SELECT pillarbox.enqueue('', ARRAY['r@example.com'], 'x', metadata => %(m)s::jsonb, jobid => %(j)s)",
        m=json.dumps(metadata),
        j="j" * 255,
    )
    [row] = factory.queue()
    assert {key: row.metadata[key] for key in metadata} == metadata
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="jobid 255 characters"):
        factory.sql("SELECT pillarbox.enqueue('', ARRAY['r@example.com'], 'x', jobid => repeat('j', 256))")


@pytest.mark.parametrize("asked", ["infinity", "9999-01-01 00:00+00", "100000-01-01"])
def test_a_time_outside_the_range_of_python_is_refused(factory: Factory, asked: str) -> None:
    """The driver knows no such year: one row of it would stop every claim of its partition."""
    with pytest.raises(psycopg.errors.DatetimeFieldOverflow):
        factory.sql(
            "SELECT pillarbox.enqueue('', ARRAY['r@example.com'], 'x', deliver_at => %(at)s::timestamptz)", at=asked
        )
    id_ = factory.row()
    for column in ("ts", "next_retry"):
        for bad in (asked, "-infinity", "0044-03-15 BC"):
            with pytest.raises(psycopg.errors.CheckViolation, match="queue_times"):
                factory.sql("UPDATE pillarbox.queue SET ts = %(at)s".replace("ts", column), at=bad)
    assert len(factory.queue(id_)) == 1


def copy(uri: str, table: str, values: dict[str, Any], *, raw: bool = False) -> None:
    """COPY one row in; `raw` values are in COPY's own notation already."""
    statement = f"COPY pillarbox.{table} ({', '.join(values)}) FROM STDIN"
    with (
        psycopg.connect(uri) as connection,
        connection.cursor() as cursor,
        cursor.copy(statement.encode()) as rows,
    ):
        if raw:
            rows.write(("\t".join(map(str, values.values())) + "\n").encode())
        else:
            rows.write_row(tuple(values.values()))
