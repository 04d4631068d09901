"""policy — measures the cost of a policy for each recipient

Owns: one measurement: a policy of 50 rules in phase rcptto, of which none matches, so that each is evaluated.
Guarantees: needs no database and writes nothing; the last line is `policy_50_rules_us=…`, the median of the rounds.
"""

from __future__ import annotations

import statistics
import sys
from datetime import UTC, datetime
from time import process_time
from typing import Final

from shared.config.smtpd.policy import Policy
from shared.mail.message import Address
from smtpd.policy.compile import compile_policy
from smtpd.policy.engine import Facts, decide

RULES: Final = 50
_ROUNDS: Final = 9
_RECIPIENTS: Final = 2000  # in each round


def policy(rules: int) -> Policy:
    """Rules of three conditions each; each is evaluated, most up to the second condition, and none matches."""
    written = [
        {
            "id": f"customer-{number}",
            "if": {
                "client": ["192.0.2.0/24", "2001:db8::/32"],
                "recipientdomain": [f"customer{number}.example", f"*.customer{number}.example"],
                "sender": ["news@example.com"],
            },
            "then": {"metadata": {"tenant": f"{number}"}},
        }
        for number in range(rules)
    ]
    return Policy.model_validate({"rules": written})


def measure(rules: int = RULES) -> float:
    """Microseconds of CPU for each recipient, with new facts for each as in smtpd; the median of the rounds."""
    compiled = compile_policy(policy(rules))
    now, sender = datetime.now(UTC), Address("news", "example.com")
    recipients = [Address("someone", f"mail{number % 100}.example.net") for number in range(_RECIPIENTS)]
    rounds = []
    for _ in range(_ROUNDS):
        started = process_time()
        for number, recipient in enumerate(recipients, start=1):
            facts = Facts(
                now=now,
                client="192.0.2.7",
                listener="default",
                helo="client.example",
                sender=sender,
                recipient=recipient,
                recipients=number,
            )
            decide("rcptto", facts, compiled)
        rounds.append((process_time() - started) / len(recipients) * 1e6)
    return statistics.median(rounds)


def main() -> int:
    """Measure and print."""
    print(f"policy_{RULES}_rules_us={measure():.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
