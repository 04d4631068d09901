"""test-verbs-and-routes — each verb that operates the queue has a route over HTTP, or a reason why it has none

Guarantees: a verb or a route that comes, goes or is renamed has to be entered here.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from httpd.app import described
from scripts.cli import parser_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER: Final = "leaves are made by their owner, in locks that no request should wait for; plan and balance are routes"
#: The routes of each verb, below /v1; or why it has none.
VERBS: Final[dict[str, tuple[str, ...] | str]] = {
    "queue list": ("GET /queue",),
    "queue group": ("GET /queue/groups", "GET /queue/count"),
    "queue show": ("GET /queue/{id}",),
    "queue shape": ("GET /queue/shape",),
    "queue top": "it draws a terminal; its figures are those of group and shape",
    "queue trace": ("GET /queue/{id}/trace",),
    "queue audit": ("GET /audit", "GET /audit/{id}"),
    "queue hold": ("POST /queue/hold",),
    "queue release": ("POST /queue/release",),
    "queue retry": ("POST /queue/retry",),
    "queue delay": ("POST /queue/delay",),
    "queue priority": ("POST /queue/priority",),
    "queue move": ("POST /queue/move",),
    "queue bounce": ("POST /queue/bounce",),
    "queue delete": ("POST /queue/delete",),
    "queue undo": ("POST /audit/{id}/undo",),
    "quarantine list": ("GET /quarantine", "GET /quarantine/mail"),
    "quarantine show": ("GET /quarantine/mail/{id}",),
    "quarantine release": ("POST /quarantine/release", "POST /queue/copy"),
    "quarantine delete": ("POST /quarantine/delete",),
    "quarantine rescan": ("POST /quarantine/rescan",),
    "quarantine export": ("GET /quarantine/mail/{id}/raw",),
    "quarantine digest": ("POST /quarantine/digest",),
    "suspend add": ("POST /suspends",),
    "suspend list": ("GET /suspends",),
    "suspend remove": ("DELETE /suspends/{id}", "DELETE /suspends"),
    "suppress add": ("POST /suppressions",),
    "suppress import": ("POST /suppressions",),
    "suppress remove": ("DELETE /suppressions/{target}",),
    "suppress list": ("GET /suppressions",),
    "deadletters list": ("GET /deadletters", "GET /deadletters/count"),
    "deadletters show": ("GET /deadletters/{id}",),
    "deadletters requeue": ("POST /deadletters/requeue",),
    "deadletters watch": "it lasts until Ctrl-C; a webhook for failed and expired brings the same, and loses none",
    "schedule add": ("POST /schedules", "POST /messages"),
    "schedule list": ("GET /schedules",),
    "schedule remove": ("DELETE /schedules/{id}",),
    "schedule enable": ("POST /schedules/{id}/enable",),
    "schedule disable": ("POST /schedules/{id}/disable",),
    "webhooks add": ("POST /webhooks",),
    "webhooks list": ("GET /webhooks",),
    "webhooks test": ("POST /webhooks/{name}/test",),
    "webhooks replay": ("POST /webhooks/{name}/replay",),
    "webhooks enable": ("POST /webhooks/{name}/enable",),
    "webhooks disable": ("POST /webhooks/{name}/disable",),
    "webhooks rotate": ("POST /webhooks/{name}/rotate",),
    "webhooks remove": ("DELETE /webhooks/{name}",),
    "partitions show": ("GET /partitions",),
    "partitions plan": ("GET /partitions/plan",),
    "partitions apply": _OWNER,
    "partitions split": _OWNER,
    "partitions merge": _OWNER,
    "partitions move": _OWNER,
    "partitions balance": ("GET /partitions/balance",),
    "doctor": ("GET /doctor",),
}
#: Routes that are not verbs of these: mail of one's own.
_OWN_MAIL: Final = ("/v1/messages", "/emails")


def verbs(parser: argparse.ArgumentParser, before: str = "") -> Iterator[str]:
    """Every verb below a parser, in its words."""
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not below:
        yield before
    for action in below:
        for name, each in action.choices.items():
            yield from verbs(each, f"{before} {name}".strip())


def test_each_verb_has_a_route_or_a_reason() -> None:
    nouns = {verb.partition(" ")[0] for verb in VERBS}
    assert set(verbs(parser_of(sorted(nouns)))) == set(VERBS)


def test_each_route_is_that_of_a_verb() -> None:
    served = {
        f"{method.upper()} {path}" for path, methods in described().openapi()["paths"].items() for method in methods
    }
    entered = {
        f"{method} /v1{path}"
        for routes in VERBS.values()
        if not isinstance(routes, str)
        for method, path in (each.split(" ") for each in routes)
    }
    assert entered <= served
    assert {each for each in served - entered if not each.split(" ")[1].startswith(_OWN_MAIL)} == set()
