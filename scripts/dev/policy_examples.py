"""policy_examples — one worked example for each action of a policy rule

Owns: the examples of docs/reference/policy.md: a policy, an envelope, and the output of `pillarbox policy test`.
Guarantees: every action has an example; `says` is the command's output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Example:
    """`policy` as below `policy:` in smtpd.yaml; `envelope`: options of the command; `says`: its last lines."""

    wish: str
    policy: str
    envelope: str
    says: tuple[str, ...]


EXAMPLES: Final[dict[str, Example]] = {
    "accept": Example(
        "The rules below do not apply to the monitoring host.",
        """\
rules:
  - id: monitoring
    if: {client: ["192.0.2.10/32"]}
    then: {accept: true}
  - id: closed
    if: {recipientdomain: [closed.example]}
    then: {reject: "550 5.7.1 Closed"}
""",
        "--client 192.0.2.10 --from probe@example.com --to x@closed.example",
        ("x@closed.example: DELIVER partition 1 transport default _policyrule='monitoring'",),
    ),
    "reject": Example(
        "The old domain accepts no more mail; the client gets the refusal at RCPT and can report it to its user.",
        """\
rules:
  - id: old-domain
    if: {recipientdomain: [old.example, "*.old.example"]}
    then: {reject: "550 5.1.2 Please write to new.example"}
""",
        "--client 192.0.2.7 --from a@example.com --to x@old.example --to y@new.example",
        (
            "x@old.example: refused: 550 5.1.2 Please write to new.example",
            "y@new.example: DELIVER partition 6 transport default",
        ),
    ),
    "defer": Example(
        "Large mail is accepted at night only; clients retry automatically.",
        """\
rules:
  - id: large-only-at-night
    phase: mailfrom
    if:
      size: ">20MiB"
      not: {time: [{hours: "20:00-06:00", zone: Europe/Berlin}]}
    then: {defer: "452 4.3.4 Large mail is welcome after 20:00"}
""",
        "--client 192.0.2.7 --from a@example.com --to x@example.net --size 25MiB --at 2026-07-01T12:00+02:00",
        ("refused: 452 4.3.4 Large mail is welcome after 20:00",),
    ),
    "hold": Example(
        "A new customer's mail waits until a reviewer has checked it; `holdreason` says why.",
        """\
rules:
  - id: new-customer
    if: {senderdomain: [customer.example]}
    then: {hold: "mailquarantine:release1", holdreason: "first mail of {senderdomain}, by {user}"}
""",
        "--client 192.0.2.7 --user carol --from a@customer.example --to x@example.net",
        (
            (
                "x@example.net: HOLD partition 4 transport default _quarantineid='mailquarantine:release1' "
                "_holdreason='first mail of customer.example, by carol' _policyrule='new-customer'"
            ),
        ),
    ),
    "metadata": Example(
        "Every row names its tenant and campaign, for queries and statistics.",
        """\
rules:
  - id: tenant
    phase: auth
    then: {metadata: {tenant: "{user}"}}
  - id: campaign
    phase: eod
    if: {header: {X-Campaign: ["spring-*"]}}
    then: {metadata: {campaign: spring}}
""",
        "--client 192.0.2.7 --user acme --from news@acme.example --to x@example.net --message campaign.eml",
        (
            (
                "x@example.net: DELIVER partition 4 transport default campaign='spring' tenant='acme' "
                "_policyrule='tenant,campaign'"
            ),
        ),
    ),
    "partition": Example(
        "One slow destination gets its own worker, so that no other mail waits behind it.",
        """\
rules:
  - id: slow-destination
    if: {recipientdomain: [slow.example]}
    then: {partition: slow}
""",
        "--client 192.0.2.7 --from a@example.com --to x@slow.example",
        ("x@slow.example: DELIVER partition slow transport default _policyrule='slow-destination'",),
    ),
    "partitionkey": Example(
        "Bulk mail is partitioned by user instead of destination, so that one mailing stays in one partition.",
        """\
rules:
  - id: bulk
    phase: mailfrom
    if: {user: [newsletter]}
    then: {partitionkey: user}
""",
        "--client 192.0.2.7 --user newsletter --from a@example.com --to x@example.net --to y@example.org",
        (
            "x@example.net: DELIVER partition 6 transport default _policyrule='bulk'",
            "y@example.org: DELIVER partition 6 transport default _policyrule='bulk'",
        ),
    ),
    "transport": Example(
        "Mail to the partner uses the transport partner of queued.yaml.",
        """\
rules:
  - id: partner
    if: {recipientdomain: [partner.example]}
    then: {transport: partner}
""",
        "--client 192.0.2.7 --from a@example.com --to x@partner.example",
        ("x@partner.example: DELIVER partition 2 transport partner _policyrule='partner'",),
    ),
    "priority": Example(
        "Login codes are delivered before newsletters.",
        """\
rules:
  - id: codes
    phase: mailfrom
    if: {sender: [codes@example.com]}
    then: {priority: 5}
  - id: newsletters
    phase: mailfrom
    if: {user: [newsletter]}
    then: {priority: -5}
""",
        "--client 192.0.2.7 --from codes@example.com --to x@example.net",
        ("x@example.net: DELIVER partition 4 transport default priority 5 _policyrule='codes'",),
    ),
    "addheader": Example(
        "Every message names its submitter, whatever the client wrote.",
        """\
rules:
  - id: submitter
    phase: eod
    if: {authenticated: true}
    then: {addheader: {X-Submitter: "{user} from {client}"}}
""",
        "--client 192.0.2.7 --user alice --from a@example.com --to x@example.net",
        (
            "x@example.net: DELIVER partition 4 transport default _policyrule='submitter'",
            "adds: X-Submitter: alice from 192.0.2.7",
        ),
    ),
    "delay": Example(
        "A client with an implausible HELO name is delayed, which deters spam programs.",
        """\
rules:
  - id: nonsense-name
    phase: helo
    if: {helo: [localhost, "*.local", "/^[0-9.]+$/"]}
    then: {delay: 10s}
""",
        "--client 192.0.2.7 --helo localhost --from a@example.com --to x@example.net",
        (
            "x@example.net: DELIVER partition 4 transport default _policyrule='nonsense-name'",
            "delayed: 10 s in all",
        ),
    ),
}

#: The message of the example that has one.
CAMPAIGN: Final = b"From: news@acme.example\r\nSubject: Spring\r\nX-Campaign: spring-1\r\n\r\nHello\r\n"
