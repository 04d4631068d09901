"""An order and the mail that confirms it, in one transaction: with Django's ORM.

    PGHOST=db.example PGUSER=shop PGDATABASE=shop python with_django.py

The login has the role pillarbox_application, and the table
`CREATE TABLE orders (id bigserial PRIMARY KEY, customer text NOT NULL)`. The view `pillarbox.own_mail` is a model that
Django does not manage: what is created in it is queued. In a project the settings are in its own file.
"""

from __future__ import annotations

import os
from email.message import EmailMessage
from email.policy import SMTP

import django
from django.conf import settings
from django.db import DatabaseError, models, transaction

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["PGDATABASE"],  # libpq reads the other variables itself
        }
    }
)
django.setup()


class Order(models.Model):
    """What a customer ordered."""

    id = models.BigAutoField(primary_key=True)
    customer = models.TextField()

    class Meta:
        """Where it is."""

        app_label = "shop"
        db_table = "orders"


class Mail(models.Model):
    """A message to one recipient: creating it queues it."""

    id = models.BigAutoField(primary_key=True)
    sender = models.TextField()
    recipient = models.TextField()
    content = models.BinaryField()
    idempotency_key = models.TextField(null=True)

    class Meta:
        """Where it is: the quotes end one name and begin the next."""

        app_label = "shop"
        db_table = 'pillarbox"."own_mail'
        managed = False


class Declined(Exception):
    """The card was declined."""


def confirmation(order: int, customer: str) -> bytes:
    """The message as it arrives; the policy SMTP ends its lines with CR LF."""
    message = EmailMessage()
    message["From"] = "Shop <shop@example.com>"
    message["To"] = customer
    message["Subject"] = f"Your order {order}"
    message.set_content("Thank you.")
    return message.as_bytes(policy=SMTP)


def place(customer: str, *, card: str = "good") -> int:
    """Place an order: the order and its confirmation, or neither."""
    with transaction.atomic():
        order = Order.objects.create(customer=customer)
        Mail.objects.create(
            sender="shop@example.com",
            recipient=customer,
            content=confirmation(order.id, customer),
            idempotency_key=f"order-{order.id}",
        )
        if card == "declined":
            raise Declined
    return int(order.id)


if __name__ == "__main__":
    print("order", place("ann@example.net"), "is confirmed")
    try:
        place("not an address")
    except DatabaseError as refused:
        print("no order:", str(refused).splitlines()[0])
    try:
        place("bob@example.net", card="declined")
    except Declined:
        print("no order: the card was declined")
