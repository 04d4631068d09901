"""settings — the whole of collect.yaml

Owns: the models of the collector of account mail: where accounts and queue are, batches, keys, mail.
Guarantees: ids of keys are unique; links have the place of the token. That a collector which is enabled has a key, a
    sender and its links is one error for each that is missing.
See: docs/how-to/send/account-mail.md; sql/accounts/README.md
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator

from shared.config.environment import Log
from shared.config.fields import (
    Checked,
    FilePath,
    Interval,
    MisplacedError,
    Section,
    Text,
    matching,
    required,
    section,
    setting,
    unique_ids,
    whole,
)
from shared.config.fields import Duration as OptionalSpan
from shared.config.metrics import Listen
from shared.config.queued.login import Secret
from shared.mail.address import AddressRefused, parse
from shared.masking import show

Schema = Annotated[str, matching(r"[a-z_][a-z0-9_]{0,62}", "1 to 63 of a-z, 0-9 and underscore")]
KeyId = Annotated[str, matching(r"[A-Za-z0-9_-]{1,32}", "1 to 32 letters, digits, hyphens and underscores")]
Language = Annotated[str, matching(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", "a language tag such as en or pt-BR")]
_DISPLAY = matching(r"[^\x00-\x1f\x7f]{1,200}", "1 to 200 characters without control characters")


def _address(value: object) -> str:
    try:
        return str(parse(value if isinstance(value, str) else ""))
    except AddressRefused as error:
        raise ValueError(f"{show(value)} is not usable here: {error}; allowed: local-part@domain") from None


def _link(value: object) -> str:
    if isinstance(value, str) and value.startswith(("https://", "http://")) and value.count("{token}") == 1:
        return value
    raise ValueError(f"{show(value)} is not a link; allowed: an http or https URL with {{token}} once")


Address = Annotated[str, Checked(_address, {"type": "string", "minLength": 3})]
Link = Annotated[str, Checked(_link, {"type": "string", "pattern": "^https?://.*\\{token\\}"})]


class Database(Section):
    """The queue's database as the collector sees it."""

    uri: Text = setting(
        "embedded:",
        "The database that holds the queue, the same as in smtpd.yaml. embedded: is the PostgreSQL under "
        "environment.var; anything else is a libpq URI or conninfo string of a PostgreSQL 15 or newer.",
        unit="text",
        repr=False,
    )


class Environment(Section):
    """Where the collector lives."""

    database: Database = section(Database, "The database that holds the queue.")
    var: FilePath = setting(
        "var", "The folder for the embedded server and for run-time files.", unit="path from the working folder"
    )
    log: Log = section(Log, "What is written to the log.")


class AccountTables(Section):
    """Where the accounts are."""

    uri: Text | None = setting(
        None,
        "The database that holds the accounts, a libpq URI, if it is another one than the queue's.",
        unit="text",
        absent="environment.database.uri",
        repr=False,
    )
    schema_: Schema = setting(
        "public", "The schema that `pillarbox accounts install` was given.", unit="name", alias="schema"
    )


class Batch(Section):
    """How many tokens are collected at a time, and when."""

    least: Annotated[int, whole(1, 10_000)] = setting(10, "The most tokens in one batch while few wait.", unit="tokens")
    most: Annotated[int, whole(1, 10_000)] = setting(
        500,
        "The most tokens in one batch while many wait: each full batch is followed by one twice as large.",
        unit="tokens",
    )
    wait: OptionalSpan = setting(
        "0s", "How long a token may wait for a batch to become full; 0s sends it at once.", unit="duration"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise MisplacedError([(("least",), f"{self.least} is more than batch.most; allowed: at most {self.most}")])
        return self


class Key(Secret):
    """One key that signs secrets: 64 hexadecimal digits, in a file or in an environment variable."""

    id: KeyId = required("The name of the key, which a bound token carries.", unit="id, unique")


class AccountMail(Section):
    """What the mail says, and who sends it."""

    sender: Address | None = setting(
        None,
        "The address that the mail is from, in its header and its envelope.",
        unit="address",
        absent="the collector cannot run",
    )
    name: Annotated[str, Checked(_DISPLAY.read, {"type": "string", "minLength": 1})] | None = setting(
        None, "The name beside that address.", unit="text", absent="the address alone"
    )
    activate: Link | None = setting(
        None,
        "The page that activates an account; {token} stands for the signed secret.",
        unit="URL",
        absent="the collector cannot run",
    )
    recover: Link | None = setting(
        None,
        "The page that recovers a password, which asks for the code; {token} stands for the signed secret.",
        unit="URL",
        absent="the collector cannot run",
    )
    templates: FilePath | None = setting(
        None,
        "The folder of the templates: LANGUAGE/ACTION.subject, .txt and .html, where ACTION is activation and "
        "password_recovery.",
        unit="path",
        absent="those that Pillarbox brings, in English",
    )
    language: Language = setting(
        "en", "The language for accounts without one, or with one that has no templates.", unit="language tag"
    )


class CollectMetrics(Section):
    """The address at which the collector answers Prometheus and checks of its health."""

    listen: Listen | None = setting(
        None, "The address of /metrics, /healthy and /ready.", unit="host and port", absent="off"
    )
    refresh: Interval = setting(
        "15s",
        "How often scrapes may query PostgreSQL for the tokens that wait; in between, they get the last answer.",
        unit="duration",
    )


class Shutdown(Section):
    """How the collector stops."""

    timeout: Interval = setting(
        "30s",
        "How long the batch in hand may take when stopping; then it is given up, and collected later.",
        unit="duration",
    )


class CollectConfig(Section):
    """Everything in collect.yaml."""

    enabled: bool = setting(False, "Whether `pillarbox up` runs the collector.", unit="truth")
    environment: Environment = section(Environment, "Where the collector finds the queue's database, files and log.")
    accounts: AccountTables = section(AccountTables, "Where the accounts are.")
    batch: Batch = section(Batch, "How many tokens are collected at a time.")
    poll: Interval = setting("5s", "How often to look for new tokens without a notification.", unit="duration")
    keep: Interval = setting("30d", "How long expired tokens are kept.", unit="duration")
    form: Literal["bound", "mailroom"] = setting(
        "bound",
        "bound: a signed secret also binds its key's id and its expiry; mailroom: as mailroom's collector writes it.",
        unit="word",
    )
    keys: Annotated[list[Key], AfterValidator(unique_ids)] = setting(
        [],
        "The keys: the first signs, and each is valid for `pillarbox accounts verify`. 64 hexadecimal digits each.",
        unit="list of keys",
    )
    mail: AccountMail = section(AccountMail, "What the mail says.")
    metrics: CollectMetrics = section(CollectMetrics, "Metrics and health pages over HTTP.")
    shutdown: Shutdown = section(Shutdown, "How the collector stops.")

    @model_validator(mode="after")
    def _can_run(self) -> Self:
        if self.enabled and (absent := self.missing()):
            raise MisplacedError([(place, "is missing; allowed without it: enabled: false") for place in absent])
        return self

    def missing(self) -> list[tuple[str, ...]]:
        """The keys without which no mail can be made."""
        found: list[tuple[str, ...]] = [] if self.keys else [("keys",)]
        needed = ("sender", "activate", "recover")
        return found + [("mail", name) for name in needed if getattr(self.mail, name) is None]
