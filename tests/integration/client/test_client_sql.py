"""test_client_sql — the client for Python sends inside the application's transaction, with psycopg and with Django

Owns: proofs about clients/python/pillarbox_client/sql.py and django.py, the code on its page, and its wheel.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from pillarbox_client import Message, Tag
from pillarbox_client.compose import compose
from pillarbox_client.sql import send, send_async, send_batch
from psycopg.conninfo import conninfo_to_dict

from tests.fixtures.daemons.programs import CLIENT, blocks, ran
from tests.fixtures.database.logins import name_of

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

VARIABLES: Final = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
}
DJANGO: Final = """
import json, os
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]}},
    MAILERS={
        "default": {"BACKEND": "pillarbox_client.django.SqlBackend"},
        "quiet": {"BACKEND": "pillarbox_client.django.SqlBackend", "OPTIONS": {"fail_silently": True}},
    },
    USE_TZ=True,
)
django.setup()
from django.core.mail import EmailMultiAlternatives, send_mail
from django.db import DatabaseError, transaction

with transaction.atomic():
    assert send_mail("Kept", "Grüße", "Shop <shop@example.com>", ["ann@example.net", "Bob <bob@example.net>"]) == 1
try:
    with transaction.atomic():
        send_mail("Gone", "x", "shop@example.com", ["ann@example.net"])
        raise RuntimeError
except RuntimeError:
    pass

email = EmailMultiAlternatives("Extra", "x", "shop@example.com", ["ann@example.net"], bcc=["dora@example.net"])
email.attach_alternative("<p>x</p>", "text/html")
email.metadata, email.tags, email.send_at = {"order": 7}, ["spring"], "2030-01-01T12:00:00+00:00"
email.envelope_sender, email.esp_extra = "bounces@example.com", {"idempotency_key": "k", "priority": 4, "job": "spring"}
assert email.send() == 1
said = {"id": email.anymail_status.message_id, "status": sorted(email.anymail_status.status),
        "recipients": {name: each.status for name, each in email.anymail_status.recipients.items()}, "refused": []}
with transaction.atomic():
    for wrong in ({"template_id": "t"}, {"esp_extra": {"colour": "red"}}, {"metadata": {"_a": 1}},
                  {"from_email": "nobody"}, {"esp_extra": {"transport": "a\\tb"}}):
        email = EmailMultiAlternatives("Wrong", "x", "shop@example.com", ["ann@example.net"])
        for name, value in wrong.items():
            setattr(email, name, value)
        try:
            email.send()
        except (ValueError, DatabaseError) as error:
            said["refused"].append(type(error).__name__)
        assert email.send(using="quiet") == 0 and email.anymail_status.status == {"failed"}
    assert send_mail("After", "x", "shop@example.com", ["ann@example.net"]) == 1  # the transaction is usable
print(json.dumps(said))
"""


def message(**other: Any) -> Message:
    """A message with these other values."""
    return Message(**{"sender": "Shop <shop@example.com>", "to": "ann@example.net", "text": "Thanks.\n", **other})


def test_a_message_is_queued_with_everything_it_says(factory: Factory, logins: Logins) -> None:
    said = message(bcc="Zoë <zoë@example.org>", priority=3, tags=[Tag(name="kind", value="order")], metadata={"n": 7})
    with psycopg.connect(logins.uri("application")) as connection:
        id_ = send(connection, said, transport="relay", job="spring")
        assert factory.queue() == []  # it is not committed
    first, second = factory.queue()
    assert (first.messages__id, first.senderlocalpart, first.recipientlocalpart) == (id_, "shop", "ann")
    assert (second.recipientlocalpart, second.priority, second.jobid, second.transportid) == (
        "zoë",
        3,
        "spring",
        "relay",
    )
    assert {key: first.metadata[key] for key in ("kind", "n")} == {"kind": "order", "n": 7}
    assert factory.bodies()[id_].content == compose(said)


def test_a_rolled_back_message_does_not_exist(factory: Factory, logins: Logins) -> None:
    with psycopg.connect(logins.uri("application")) as connection, connection.cursor() as cursor:
        send(cursor, message())
        connection.rollback()
    assert factory.bodies() == {}


def test_the_same_message_under_its_key_is_queued_once(factory: Factory, logins: Logins) -> None:
    said = message(html="<p>Thanks.</p>")
    with logins.session("application") as connection:
        first = send(connection, said, idempotency_key="order-7")
        assert send(connection, said, idempotency_key="order-7") == first
        assert send_batch(connection, [message(), said], idempotency_keys=[None, "order-7"])[1] == first
        with pytest.raises(psycopg.errors.UniqueViolation):
            send(connection, message(subject="another"), idempotency_key="order-7")
    assert len(factory.queue()) == 2


async def test_an_asynchronous_connection_sends(factory: Factory, logins: Logins) -> None:
    async with await psycopg.AsyncConnection.connect(logins.uri("application")) as connection:
        id_ = await send_async(connection, message())
    assert [row.messages__id for row in factory.queue()] == [id_]


def test_a_batch_is_queued_whole_or_not_at_all(factory: Factory, logins: Logins) -> None:
    said = [message(subject=f"{n} ü", to=f"r{n}@example.net") for n in range(100)]
    with logins.session("application") as connection:
        ids = send_batch(connection, said)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="element 2: not an address"):
            send_batch(connection, [message(), message(to="a b@example.net")])
        with pytest.raises(ValueError, match="message 1: raw is not UTF-8"):
            send_batch(connection, [Message(sender="a@example.com", to=["b@example.com"], raw=b"\xff")])
    bodies = factory.bodies()
    assert [bodies[id_].content for id_ in ids] == [compose(each) for each in said]
    assert len(factory.queue()) == 100


async def test_djangos_mail_is_queued_in_its_transaction_with_what_anymail_adds(
    factory: Factory, logins: Logins
) -> None:
    uri = logins.uri("application")
    said = json.loads(await ran(DJANGO, **login(uri)))
    assert said["status"] == ["queued"]
    assert said["recipients"] == {"ann@example.net": "queued", "dora@example.net": "queued"}
    assert said["refused"] == [
        *("UnsupportedFeature", "UnsupportedFeature", "ValidationError", "ValidationError", "DataError"),
    ]
    subjects = factory.sql("SELECT id, subject FROM pillarbox.messages ORDER BY ts, id")
    assert [row.subject for row in subjects] == ["Kept", "Extra", "After"]
    extra = [row for row in factory.queue() if str(row.messages__id) == said["id"]]
    assert [(row.senderlocalpart, row.recipientlocalpart, row.priority, row.jobid) for row in extra] == [
        ("bounces", "ann", 4, "spring"),
        ("bounces", "dora", 4, "spring"),
    ]
    assert {(row.metadata["order"], row.metadata["spring"], row.next_retry.year) for row in extra} == {
        (7, "true", 2030)
    }
    assert {row.saslusername for row in factory.queue()} == {name_of(uri)}


async def test_the_code_on_its_page_runs(factory: Factory, logins: Logins) -> None:
    uri = logins.uri("application")
    factory.sql("CREATE TABLE public.orders (id integer, customer text)")
    factory.sql(f"GRANT ALL ON public.orders TO {name_of(uri)}")
    sending, _, _, verifying = blocks()
    await ran(sending, **login(uri))
    assert await ran(verifying + "print(endpoint(b'{}', {}))") == "400\n"
    assert [row.recipientlocalpart for row in factory.queue()] == ["ann"]
    assert factory.one("SELECT count(*) FROM public.orders") == 1


def test_the_package_needs_and_has_what_it_says() -> None:
    said = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = [path.name for path in CLIENT.iterdir() if (path / "__init__.py").exists()]
    assert said["tool"]["setuptools"]["packages"] == folders
    imported = set()
    for path in (CLIENT / "pillarbox_client").glob("*.py"):
        imported |= set(re.findall(r"^(?:from|import) ([a-z0-9_]+)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert imported - set(sys.stdlib_module_names) == {"pydantic", "django", "httpx", "pillarbox_client"}


def login(uri: str) -> dict[str, str]:
    """The variables by which libpq finds a login."""
    return {VARIABLES[name]: str(value) for name, value in conninfo_to_dict(uri).items() if name in VARIABLES}
