"""An order and the mail that confirms it, in one transaction: with SQLAlchemy's ORM.

    python with_sqlalchemy.py 'postgresql+psycopg://shop@db.example/shop'

The login has the role pillarbox_application, and the table
`CREATE TABLE orders (id bigserial PRIMARY KEY, customer text NOT NULL)`. The view `pillarbox.own_mail` is mapped like a
table: what is added to it is queued.
"""

from __future__ import annotations

import sys
from email.message import EmailMessage
from email.policy import SMTP

from sqlalchemy import BigInteger, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """What a customer ordered."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    customer: Mapped[str]


class Mail(Base):
    """A message to one recipient: adding it queues it."""

    __tablename__ = "own_mail"
    __table_args__ = {"schema": "pillarbox"}

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    sender: Mapped[str]
    recipient: Mapped[str]
    content: Mapped[bytes]
    idempotency_key: Mapped[str | None]


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


def place(session: Session, customer: str, *, card: str = "good") -> int:
    """Place an order: the order and its confirmation, or neither."""
    with session.begin():
        order = Order(customer=customer)
        session.add(order)
        session.flush()  # gives the order its number
        session.add(
            Mail(
                sender="shop@example.com",
                recipient=customer,
                content=confirmation(order.id, customer),
                idempotency_key=f"order-{order.id}",
            )
        )
        session.flush()
        if card == "declined":
            raise Declined
        return order.id


if __name__ == "__main__":
    with Session(create_engine(sys.argv[1])) as shop:
        print("order", place(shop, "ann@example.net"), "is confirmed")
        try:
            place(shop, "not an address")
        except DBAPIError as refused:
            print("no order:", str(refused.orig).splitlines()[0])
        try:
            place(shop, "bob@example.net", card="declined")
        except Declined:
            print("no order: the card was declined")
