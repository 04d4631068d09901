"""asked — the forms that only the API has: a page of a list, and how far a change has come"""

from operate.shapes.mail import Changed, Requeued
from operate.shapes.shape import Shape, meaning


class Page[Item: Shape](Shape):
    """A part of a list."""

    data: list[Item] = meaning("In the order of the list.")
    next: str | None = meaning("Where the list goes on: give it as `after`. null: this is the end.")


class Acted(Changed):
    """What a request has changed."""

    next: str | None = meaning(
        "The request took as long as it may, and stopped: the same request with this as `after` does the rest. null: "
        "it came to its end."
    )
    rest: int = meaning("How many it did not come to; with a `limit`, the limit of the next request.")


class Counted(Shape):
    """How many recipients match."""

    recipients: int = meaning("How many.")


class RequeuedSoFar(Requeued):
    """What a request has sent once more."""

    rest: int = meaning("How many it did not come to in its time: the same request does them.")
