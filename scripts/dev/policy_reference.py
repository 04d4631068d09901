"""policy_reference — the page docs/reference/policy.md

Owns: the page's prose and tables: phases, conditions, actions with their examples, lists, the content check.
Guarantees: tables come from the models, examples from scripts.dev.policy_examples, so neither can be out of date.
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
    "connect": "a client has connected; before the greeting, and instead of it when refused",
    "helo": "HELO or EHLO; what an earlier one changed is forgotten",
    "auth": "the client has proven who it is; before 235",
    "mailfrom": "MAIL FROM, for the message that begins",
    "rcptto": "RCPT TO, for each recipient; after it is known that the client may relay",
    "eod": "the end of data: content has come and its form is sound; before it is committed",
}

_INTRODUCTION: Final = """\
# Policy

What smtpd does with a client, a message and each recipient is decided by `policy` in `smtpd.yaml`. A rule has
an `id`, a `phase` (default `rcptto`), conditions (`if`) and actions (`then`):

    policy:
      rules:
        - id: old-domain
          if: {recipientdomain: [old.example]}
          then: {reject: "550 5.1.2 Please write to new.example"}

`pillarbox policy test` says what would happen to an envelope and why, rule by rule; `pillarbox policy check`
whether the file can be used. smtpd takes a changed file at SIGHUP: as a whole or not at all, and for new
sessions.

## How rules add up

1. Phases come in the order of SMTP, and within a phase rules in the order of the file; `servers` restricts a
   rule to some of `servers[].id`.
2. **The first rule that decides ends its phase**: `accept`, `reject` or `defer`. `accept` ends only its own
   phase. Without a decision the client goes on.
3. **Changes add up**: `hold`, `metadata`, `partition` (or `partitionkey`), `transport` and `priority` are set
   by the first rule that sets them, over all phases; metadata key by key. `addheader` adds every field. Of
   several delays in one phase the longest counts.
4. What connect, helo and auth change holds for the session, mailfrom and eod for the message, rcptto for the
   recipient.
5. At eod a rule that asks for a recipient, or writes one, is asked for each: what it changes it changes for
   those that match. SMTP has one reply to a message, so if it refuses one recipient there, it refuses the
   message.
6. `policy.holds` are standing holds. They are asked before the rules of their phase (eod if they ask for
   header, score, symbols, size or number of recipients, else rcptto), so no `accept` passes them by.
7. No action discards mail: a message that was answered 250 is delivered, returned or held. No action opens a relay:
   `relay.networks` and `authentication` decide which clients may relay. Metadata `_policyrule` names the rules that
   matched.
8. A user's own hold, partition and transport apply where no rule has set them.

When a rule's condition cannot be decided (a list's query fails), the client gets 451 and may try again.
"""

_CONDITIONS: Final = """\
All that are given must match; one entry of a list is enough. An unknown fact matches nothing. Patterns are
globs (`*`, `?`) that match the whole text, or `/regular expressions/` in RE2's syntax that match any part; both
in any case and in linear time. The trailing dot of a name in HELO need not be in the pattern.
"""

_LISTS: Final = """\
A file has one entry a line; `#` begins a comment. Asked for `client`, entries are networks and addresses; for a
domain or host name, `example.com` and `*.example.com` (those below it); for addresses, mailboxes in any case and
quoted or not; for users the text itself. The file is looked at when a session and when a message begins, and
read again if it changed; if it cannot be read, the entries it had stay and an event says so. A query runs
read-only in the queue's database with smtpd's rights, on connections of its own; its answers are kept for
`keep`. It is given addresses in lower case, without quotes and with the domain in A-labels, and names of hosts
likewise and without a trailing dot: another spelling is no way around it. Example:

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
With a section `contentcheck`, rspamd looks at every message at eod: when the first rule that asks for `score`
or `symbols` comes up, or after the last rule. A rule that accepts before that spares the message the check.
Rules decide before rspamd's verdict; where none does, `actions` says what the verdict means: *tag* adds the
fields rspamd asks for, with `X-Spam: Yes` and `X-Spam-Score` (also on *hold*); *no action* adds only those
rspamd asks for. Content is stored as submitted: a subject is not rewritten and no field is removed, so fields
of these names that a client wrote itself stay. Checked are at most `maxsize` octets; larger mail goes unchecked
and no rule on score or symbols matches it. rspamd is spoken to in clear text, so it belongs on the same host or
a network of your own.

    contentcheck: {url: "http://127.0.0.1:11333", whendown: hold}
    rules:
      - {id: colleagues, phase: eod, if: {user: [alice, bob]}, then: {accept: true}}
      - {id: doubtful, phase: eod, if: {score: ">=4"}, then: {hold: doubtful, holdreason: "score {score}"}}
"""


def page() -> str:
    """The page without its heading comment."""
    phases = "".join(f"\n| `{name}` | {text} | {_known(name)} |" for name, text in _PHASES.items())
    braced = [f"{{{name}}}" for name in sorted(PLACEHOLDERS)]
    parts = [
        _INTRODUCTION,
        "## Phases\n\n| phase | when | known from here on |\n|---|---|---|" + phases,
        "## Rules\n\n" + _table(Rule),
        "## Conditions\n\n" + _CONDITIONS + "\n" + _table(Condition),
        "### `time`\n\n" + _table(TimeSpan),
        "### `rate`\n\nCounted over all processes of the host by the rule; what is over the limit is not counted.\n\n"
        + _table(RateCondition),
        "### `in`\n\n" + _table(ListCondition),
        "## Actions\n\n" + _table(Action),
        f"Placeholders in texts: {_words(braced)}.\nWhat a client said is made printable; the unknown is empty.",
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
