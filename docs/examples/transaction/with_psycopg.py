"""An order and the mail that confirms it, in one transaction: with psycopg.

    python with_psycopg.py 'postgresql://shop@db.example/shop'

The login has the role pillarbox_application, and the table
`CREATE TABLE orders (id bigserial PRIMARY KEY, customer text NOT NULL)`.
"""

from __future__ import annotations

import sys
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

import psycopg


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


def place(connection: psycopg.Connection[Any], customer: str, *, card: str = "good") -> int:
    """Place an order: the order and its confirmation, or neither."""
    with connection.transaction():
        [order] = connection.execute(
            "INSERT INTO orders (customer) VALUES (%s) RETURNING id", (customer,)
        ).fetchone() or (0,)
        connection.execute(
            "SELECT pillarbox.enqueue('shop@example.com', ARRAY[%s], %s, idempotency_key => %s)",
            (customer, confirmation(order, customer), f"order-{order}"),
        )
        if card == "declined":
            raise Declined
    return int(order)


if __name__ == "__main__":
    with psycopg.connect(sys.argv[1], autocommit=True) as shop:
        print("order", place(shop, "ann@example.net"), "is confirmed")
        try:
            place(shop, "not an address")
        except psycopg.errors.InvalidParameterValue as refused:
            print("no order:", refused.diag.message_primary)
        try:
            place(shop, "bob@example.net", card="declined")
        except Declined:
            print("no order: the card was declined")
