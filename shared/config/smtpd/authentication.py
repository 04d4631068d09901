"""authentication — users that may submit mail, and how they log in, in smtpd.yaml

Owns: the section `authentication`.
Guarantees: a password written where a hash belongs is refused without being quoted.
See: RFC 4954, RFC 4616, RFC 7677, RFC 4422 appendix A; Postfix smtpd_sasl_auth_enable, smtpd_tls_auth_only,
    smtpd_error_sleep_time; jail.conf(5) of fail2ban for findtime and bantime.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.config.fields import (
    Checked,
    Duration,
    FilePath,
    Interval,
    IpNetwork,
    Section,
    Text,
    section,
    setting,
    whole,
)
from shared.masking import show
from shared.security.scram_keys import ITERATIONS, LEAST_ITERATIONS, MOST_ITERATIONS

type Mechanism = Literal["PLAIN", "LOGIN", "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS", "EXTERNAL"]


def _argon2(value: object) -> str:
    if isinstance(value, str) and value.startswith("$argon2") and value.isprintable():
        return value
    # Unlike other refusals this does not quote the value: it may be the password itself.
    raise ValueError("the value is not a password hash; allowed: an argon2 hash, which begins with $argon2")


Argon2Hash = Annotated[str, Checked(_argon2, {"type": "string", "pattern": r"^\$argon2"})]


class Hashing(Section):
    """Limits on the cost of checking passwords."""

    threads: Annotated[int, whole(1, 64)] = setting(
        2, "How many passwords are hashed at the same time, at 64 MiB each.", unit="threads"
    )
    waiting: Annotated[int, whole(0, 10_000)] = setting(
        50, "How many logins may wait for hashing; further ones get 454.", unit="logins"
    )
    remembered: Duration = setting(
        "5m",
        "How long a correct password is remembered without hashing it again, unless its hash changes; 0 turns it off.",
        unit="duration",
    )


class Failures(Section):
    """What happens to clients that repeatedly fail to log in."""

    delay: Duration = setting(
        "1s",
        "How long the reply to a first failure is delayed; each further failure of the same address or name doubles "
        "it (Postfix smtpd_error_sleep_time).",
        unit="duration",
    )
    maxdelay: Duration = setting("10s", "The longest delay of such a reply.", unit="duration")
    ban: Annotated[int, whole(0, 1_000_000)] = setting(
        10,
        "How many failures are allowed before an address (IPv6: its /64) is banned, and the name is banned for the "
        "network they came from (/24, /56); 0 turns bans off.",
        unit="failures",
    )
    within: Interval = setting(
        "10m", "The time within which failures are counted (fail2ban findtime).", unit="duration"
    )
    bantime: Interval = setting("10m", "How long a ban lasts (fail2ban bantime).", unit="duration")
    trusted: list[IpNetwork] | None = setting(
        None,
        "Clients in these networks are delayed but never banned: a webmail server fails for all its users.",
        unit="list of IP networks",
        absent="relay.networks",
    )


class Authentication(Section):
    """Users that may send after authenticating (RFC 4954)."""

    users: dict[Text, Argon2Hash] = setting(
        {},
        "Users that may send, each with the argon2 hash of the password; they take precedence over those of source.",
        unit="hash by user",
        repr=False,
    )
    source: Literal["file", "table"] = setting(
        "file",
        "Where the other users are: in the file of authentication.file, or in the table pillarbox.users.",
        unit="word",
    )
    file: FilePath | None = setting(
        None,
        "The file of users that `pillarbox user` keeps; a change is noticed at the next login.",
        unit="path",
        absent="no file",
    )
    mechanisms: Annotated[list[Mechanism], Field(min_length=1)] = setting(
        ["SCRAM-SHA-256", "PLAIN", "LOGIN", "EXTERNAL"],
        "The mechanisms to offer: SCRAM-SHA-256-PLUS, SCRAM-SHA-256, PLAIN, LOGIN, EXTERNAL (only to a client whose "
        "certificate names a user).",
        unit="list of mechanisms",
    )
    tlsonly: bool = setting(
        True,
        "Whether AUTH is offered and accepted only under TLS (Postfix smtpd_tls_auth_only).",
        unit="true or false",
    )
    checkfrom: bool = setting(
        True,
        "Whether a user with limited senders must use them in the fields From, Sender and Resent- too, and may not "
        "leave From out. If false, other mail is accepted, but not signed for the domain in From.",
        unit="true or false",
    )
    iterations: Annotated[int, whole(LEAST_ITERATIONS, MOST_ITERATIONS)] = setting(
        ITERATIONS,
        "The iterations of SCRAM for new passwords (RFC 7677 section 4). For unknown users, a count that real users "
        "have is shown.",
        unit="iterations",
    )
    secret: FilePath | None = setting(
        None,
        "The file with the secret from which the salts and costs of unknown users are derived; use the same on every "
        "host. It is created if missing.",
        unit="path",
        absent="authentication.secret in environment.var",
    )
    hashing: Hashing = section(Hashing, "How many passwords are hashed at the same time.")
    failures: Failures = section(Failures, "What happens to clients that repeatedly fail to log in.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.source == "table" and self.file is not None:
            raise ValueError(f"source is table but file is {show(str(self.file))}; allowed: source: file, or no file")
        return self
