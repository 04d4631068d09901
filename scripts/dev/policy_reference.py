"""policy_reference — the page docs/reference/policy.md

Owns: the page's prose and tables: phases, conditions, actions with their examples, lists, the content check.
Guarantees: tables come from the models and examples from scripts.dev.policy_examples, so both are always current.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from scripts.dev.policy_examples import EXAMPLES
from shared.config.smtpd.policy import Hold, ListSource, Policy, Rule
from shared.config.smtpd.policy_action import Action
from shared.config.smtpd.policy_check import CheckActions, ContentCheck
from shared.config.smtpd.policy_condition import KNOWN_FROM, Condition, ListCondition, RateCondition, TimeSpan
from shared.config.smtpd.policy_fields import PLACEHOLDERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shared.config.fields import Section

_PHASES: Final = {
    "connect": "after a client has connected, before the greeting; a refusal replaces the greeting",
    "helo": "at HELO or EHLO; changes made by an earlier one are dropped",
    "auth": "after the client has authenticated, before 235",
    "mailfrom": "at MAIL FROM, for the new message",
    "rcptto": "at RCPT TO, for each recipient, after the check that the client may relay",
    "eod": "at the end of data: after the content was received and its form checked, before it is committed",
}

_INTRODUCTION: Final = """\
# Policy

`policy` in `smtpd.yaml` decides how smtpd treats a client, a message and each recipient. A rule has
an `id`, a `phase` (default `rcptto`), conditions (`if`) and actions (`then`):

    policy:
      rules:
        - id: old-domain
          if: {recipientdomain: [old.example]}
          then: {reject: "550 5.1.2 Please write to new.example"}

`pillarbox policy test` shows the result for an envelope, rule by rule; `pillarbox policy check` checks
the file. smtpd reloads a changed file at SIGHUP: completely or not at all, and for new
sessions.

## How rules combine

1. Phases run in the order of SMTP, and within a phase rules in the order of the file; `servers` restricts a
   rule to some of `servers[].id`.
2. **The first decision ends its phase**: `accept`, `reject` or `defer`. `accept` ends only its own
   phase. Without a decision the session continues.
3. **Changes accumulate**: `hold`, `metadata`, `partition` (or `partitionkey`), `transport` and `priority` are set
   by the first rule that sets them, over all phases; metadata key by key. `addheader` adds every field. Of
   several delays in one phase the longest counts.
4. Changes in connect, helo and auth apply to the session, in mailfrom and eod to the message, in rcptto to the
   recipient.
5. At eod a rule with a condition or text about the recipient runs for each recipient, and its changes apply to the
   recipients that match. SMTP has one reply to a message, so a refusal for one recipient there refuses the
   message.
6. `policy.holds` are standing holds. They run before the rules of their phase (eod if they have a condition on
   header, score, symbols, size or number of recipients, else rcptto), so no `accept` bypasses them.
7. No action discards mail: a message that was answered 250 is delivered, returned or held. No action opens a relay:
   `relay.networks` and `authentication` decide which clients may relay. Metadata `_policyrule` names the rules that
   matched.
8. A user's own hold, partition and transport apply if no rule has set them.

If a rule's condition cannot be evaluated (a list's query fails), the client gets 451 and may try again.
"""

_CONDITIONS: Final = """\
All conditions of a rule must match; one entry of a list suffices. An unknown fact matches nothing. Patterns are
globs (`*`, `?`) that match the whole text, or `/regular expressions/` in RE2's syntax that match any part. Both
ignore case and take linear time. The trailing dot of a name in HELO need not be in the pattern.
"""

_LISTS: Final = """\
A file has one entry per line; `#` begins a comment. For `client`, entries are networks and addresses; for a
domain or host name, `example.com` and `*.example.com` (its subdomains); for addresses, mailboxes in any case,
quoted or not; for users, the exact name. smtpd checks the file at the start of each session and message, and
reads it again if it changed; if it cannot be read, the old entries stay and an event reports it. A query runs
read-only in the queue's database with smtpd's rights, on its own connections; its answers are cached for
`keep`. It gets addresses in lower case, without quotes and with the domain in A-labels, so that another spelling
does not evade it. Example:

    policy:
      lists:
        - {id: customers, file: /etc/pillarbox/customers}
        - {id: suspended, query: "SELECT 1 FROM suspended WHERE name = %(value)s", keep: 5m}
      rules:
        - id: suspended
          phase: auth
          if: {in: {list: suspended, of: user}}
          then: {reject: "550 5.7.1 This account is suspended"}
"""

_CHECK: Final = """\
With a section `contentcheck`, rspamd checks every message at eod: before the first rule with a condition on `score`
or `symbols`, or after the last rule. A rule that accepts earlier skips the check.
Rules have precedence over rspamd's verdict; if none decides, `actions` maps the verdict: *tag* adds the
fields that rspamd requests, with `X-Spam: Yes` and `X-Spam-Score` (also on *hold*); *no action* adds only those
that rspamd requests. Content is stored as submitted: no subject is rewritten and no field removed, so fields
of these names written by the client remain. Mail larger than `maxsize` octets is not checked,
and no rule on score or symbols matches it. The connection to rspamd is not encrypted, so run rspamd on the same host or
in your own network.

    policy:
      contentcheck: {url: "http://127.0.0.1:11333", whendown: hold}
      rules:
        - {id: colleagues, phase: eod, if: {user: [alice, bob]}, then: {accept: true}}
        - {id: doubtful, phase: eod, if: {score: ">=4"}, then: {hold: doubtful, holdreason: "score {score}"}}
"""


_EXAMPLES: Final = """\
In the examples the clients may relay, with or without a login:

    relay:
      networks: [192.0.2.0/24]
"""


def page() -> str:
    """The page without its heading comment."""
    phases = "".join(f"\n| `{name}` | {text} | {_known(name)} |" for name, text in _PHASES.items())
    braced = [f"{{{name}}}" for name in sorted(PLACEHOLDERS)]
    parts = [
        _INTRODUCTION,
        "## Phases\n\n| phase | when | new facts |\n|---|---|---|" + phases,
        "## Rules\n\n" + _table(Rule),
        "## Conditions\n\n" + _CONDITIONS + "\n" + _table(Condition),
        "### `time`\n\n" + _table(TimeSpan),
        "### `rate`\n\nCounted for each rule over all processes of the host; events over the limit are not counted.\n\n"
        + _table(RateCondition),
        "### `in`\n\n" + _table(ListCondition),
        "## Actions\n\n" + _table(Action),
        f"Placeholders in texts: {_words(braced)}.\nA client's text is made printable; an unknown value is empty.",
        _EXAMPLES,
        *(_example(name) for name in EXAMPLES),
        "## Standing holds\n\n" + _table(Hold),
        "## Lists\n\n" + _LISTS + "\n" + _table(ListSource),
        "## The content check\n\n" + _CHECK + "\n" + _table(ContentCheck) + "\n\n" + _table(CheckActions, "actions."),
        "## The partition key\n\n" + _table(Policy, only="partitionkey"),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _known(phase: str) -> str:
    return _words(name for name, first in KNOWN_FROM.items() if first == phase) or "client, TLS, time"


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(model: type[Section], prefix: str = "", only: str | None = None) -> str:
    rows = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        if only is not None and key != only:
            continue
        text = re.sub(r"\s+", " ", field.description or "").replace("|", "\\|")
        rows.append(f"\n| `{prefix}{key}` | {text} |")
    return "| key | meaning |\n|---|---|" + "".join(rows)


def _example(name: str) -> str:
    example = EXAMPLES[name]
    written = "".join(f"    {line}\n" for line in ["policy:", *(f"  {line}" for line in example.policy.splitlines())])
    said = "".join(f"    {line}\n" for line in example.says)
    return f"### `{name}`\n\n{example.wish}\n\n{written}\n    $ pillarbox policy test {example.envelope}\n    …\n{said}"
