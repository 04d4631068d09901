"""settings — the forms of users, schedules, suspends, suppressions and of the system itself in JSON"""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import RootModel

from operate.shapes.shape import Shape, meaning


class User(Shape):
    """A user that may submit mail."""

    name: str = meaning("The name.")
    mechanisms: list[str] = meaning("The SASL mechanisms it can log in by.")
    disabled: bool = meaning("Whether its logins are refused.")
    senders: list[str] = meaning('Senders it may use; "" is the null sender; empty: any.')
    messages: int | None = meaning("Messages in an hour; null: no limit.")
    recipients: int | None = meaning("Recipients in an hour; null: no limit.")
    partition: str | None = meaning("The partition of its mail.")
    transport: str | None = meaning("The transport of its mail.")
    hold: str | None = meaning("The quarantine of its mail.")


class Principal(User):
    """A person or an application on whose behalf something is done."""

    kind: str = meaning("person or application.")
    roles: list[str] = meaning("What it may do: viewer, reviewer, operator, admin, sender.")
    reviews: list[str] | None = meaning("The quarantines it may review; null: all that let it.")


class PrincipalChanged(Shape):
    """The principal that was added, changed or removed."""

    audit: int = meaning("The number of its audit row, by which `queue undo` changes it back.")
    name: str = meaning("The name.")


class ApiKey(Shape):
    """An API key, as far as it may be shown."""

    prefix: str = meaning("How it begins, which is its name.")
    principal: str = meaning("For whom it acts.")
    scopes: list[str] = meaning("What it may do: send, read, review, operate.")
    state: str = meaning("valid, expired or revoked.")
    label: str | None = meaning("What it is for.")
    made: datetime = meaning("When it was made.")
    maker: str = meaning("On whose behalf.")
    expires: datetime | None = meaning("When it ends; null: never.")
    used: datetime | None = meaning("When it was last used, to the minute.")
    revoked: datetime | None = meaning("When it was revoked.")


class ApiKeyMade(Shape):
    """A new API key."""

    audit: int = meaning("The number of its audit row; undoing it revokes the key.")
    key: str = meaning("The key, which is shown only now.")
    prefix: str = meaning("How it begins, which is its name.")
    principal: str = meaning("For whom it acts.")
    scopes: list[str] = meaning("What it may do.")
    expires: datetime | None = meaning("When it ends; null: never.")


class SignInLink(Shape):
    """A link by which a person chooses a password for the console."""

    principal: str = meaning("Whose it is.")
    made_admin: bool = meaning("Whether this person was added, as the first admin.")
    url: str = meaning("The link, which is shown only now and works once.")
    expires: datetime = meaning("When it ends.")


class ApiKeyRevoked(Shape):
    """The key that was revoked, for good."""

    audit: int = meaning("The number of its audit row, which cannot be undone.")
    prefix: str = meaning("Its name.")
    principal: str = meaning("For whom it acted.")


class UserName(Shape):
    """The user that was changed."""

    name: str = meaning("The name.")


class UserHash(Shape):
    """A user's entry for smtpd.yaml."""

    name: str = meaning("The name.")
    argon2: str = meaning("The password's hash.")


class SmartHost(Shape):
    """The smart host that was named."""

    file: str = meaning("The queued.yaml that was changed.")
    transport: str = meaning("The transport.")
    server: str = meaning("The smart host.")
    port: int = meaning("Its port.")
    user: str | None = meaning("The user it is logged in to as.")
    password: str | None = meaning("The file that has the password.")


class Initialised(Shape):
    """The folder that was written for a host."""

    folder: str = meaning("The folder.")
    hostname: str = meaning("The host's name.")
    files: list[str] = meaning("The files in it.")
    records: list[str] = meaning("The DNS records to publish, as lines of a zone file.")
    admin: str | None = meaning("The principal with the roles admin and sender; null: PostgreSQL did not answer.")
    fault: str | None = meaning("Why PostgreSQL did not answer.")


class Schedule(Shape):
    """Recurring mail."""

    id: str = meaning("Its name.")
    cron: str = meaning("When, as a cron expression.")
    timezone: str = meaning("The time zone of the expression.")
    sender: str = meaning("The envelope sender; empty is the null sender.")
    recipients: list[str] = meaning("The addresses.")
    size: int = meaning("Octets of the message.")
    transport: str = meaning("The transport.")
    priority: int = meaning("-9 to 9.")
    next_at: datetime | None = meaning("When it is sent next.")
    last_at: datetime | None = meaning("When it was last sent.")
    last_message: UUID | None = meaning("The message that was queued then.")
    enabled: bool = meaning("Whether it is sent.")
    made: datetime = meaning("When it was added.")
    error: str | None = meaning("Why it was disabled.")


class ScheduleChanged(Shape):
    """A schedule that was added or changed."""

    audit: int = meaning("The number of its audit row.")
    id: str = meaning("Its name.")
    next: datetime | None = meaning("When it is sent next.", default=None)


class ScheduledOncePreview(Shape):
    """One message that would be sent later."""

    at: datetime = meaning("When it would be sent.")
    sender: str = meaning("The envelope sender; empty is the null sender.")
    recipients: list[str] = meaning("The addresses.")
    size: int = meaning("Octets of the message.")


class ScheduledOnce(Shape):
    """One message for later."""

    message: UUID = meaning("The message that was queued.")
    at: datetime = meaning("When it is sent.")


class Webhook(Shape):
    """An HTTP endpoint that gets events."""

    name: str = meaning("Its name.")
    url: str = meaning("Where requests go.")
    events: list[str] = meaning("The kinds of events that it gets.")
    condition: str = meaning("Which recipients; empty: all.")
    private: bool = meaning("Whether addresses that only our own networks reach are allowed.")
    batch: int = meaning("The most events in one request.")
    origin: str = meaning("command, or queued.yaml.")
    state: str = meaning("enabled, paused or disabled.")
    reason: str | None = meaning("Why it is not enabled.")
    who: str = meaning("Who added it.")
    made: datetime = meaning("When.")
    secrets: int = meaning("How many secrets sign its requests.")
    at: datetime = meaning("Up to when it has looked for events.")
    sent: int = meaning("How many events it took.")
    last_sent: datetime | None = meaning("When it took the last.")
    tries: int = meaning("How many requests in a row it did not take.")
    failing: datetime | None = meaning("Since when.")
    due: datetime | None = meaning("When it is tried again.")
    error: str | None = meaning("What it answered, or why nothing came.")
    again: datetime | None = meaning("From when on events are sent once more; null: none are.")


class WebhookName(Shape):
    """An endpoint that was changed."""

    audit: int = meaning("The number of its audit row.")
    name: str = meaning("Its name.")


class WebhookSecret(Shape):
    """An endpoint and the secret that was made for it."""

    audit: int = meaning("The number of its audit row.")
    name: str = meaning("Its name.")
    secret: str | None = meaning("The secret, this once; null: it is in a file or variable.")


class WebhookTested(Shape):
    """A test of an endpoint."""

    name: str = meaning("Its name.")
    id: str = meaning("The id of the event.")
    error: str | None = meaning("Why it was not taken; null: it was.")


class WebhookReplayed(Shape):
    """Events that are sent once more."""

    name: str = meaning("The endpoint.")
    since: datetime = meaning("From when on.")
    until: datetime = meaning("Until when.")


class Suspend(Shape):
    """Mail that is suspended."""

    id: int = meaning("Its number.")
    selection: dict[str, list[str]] = meaning("Which mail, by field; empty: all.")
    reason: str = meaning("Why.")
    who: str = meaning("Who suspended it.")
    made: datetime = meaning("When.")
    expires: datetime | None = meaning("When it ends; null: when it is removed.")
    seconds: float | None = meaning("Seconds until then.")


class Suspended(Shape):
    """A suspend that was added."""

    audit: int = meaning("The number of its audit row.")
    id: int = meaning("Its number.")
    selection: dict[str, list[str]] = meaning("Which mail, by field; empty: all.")
    expires: datetime | None = meaning("When it ends; null: when it is removed.")


class Removed(Shape):
    """Suspends that were removed."""

    audit: int = meaning("The number of its audit row.")
    removed: list[int] = meaning("Their numbers.")
    selections: list[dict[str, list[str]]] = meaning("Which mail each of them was about.")


class Setting(Shape):
    """A row of settings that a command changes."""

    noun: str = meaning("suspends, suppressions, schedules, webhooks, blocked_senders, api_keys or principals.")
    key: str = meaning("Its number, address or name.")
    before: dict[str, Any] | None = meaning("What it was; null: it was not there.")
    after: dict[str, Any] | None = meaning("What it becomes; null: it is removed.")


class SettingsPreview(Shape):
    """What a command would change: a suspend, suppressions, a schedule, a webhook, a key, a principal."""

    verb: str = meaning("The command, or the one that would be undone.")
    wanted: int = meaning("How many rows it names.")
    changed: int = meaning("How many would be changed.")
    sample: list[Setting] = meaning("The first of these.")
    left: list[str] = meaning("For an undo: the first of those that were changed since, and stay.", default=[])


class SettingsUndone(Shape):
    """What an undo has changed back."""

    audit: int = meaning("The number of its audit row.")
    wanted: int = meaning("How many rows the earlier command had changed.")
    done: int = meaning("How many were changed back.")
    skipped: int = meaning("How many were changed since, and stay.")
    left: list[str] = meaning("The first of these.")


class Suppression(Shape):
    """An address or domain that gets no mail."""

    target: str = meaning("The address or domain.")
    reason: str = meaning("Why.")
    source: str = meaning("Who said so: operator, bounce, report …")
    since: datetime = meaning("Since when.")
    expires: datetime | None = meaning("Until when; null: for ever.")
    evidence: str | None = meaning("The message that showed it.")
    count: int = meaning("How often it was reported.")
    active: bool = meaning("Whether mail is refused; false: not reported often enough.")


class Target(Shape):
    """The address or domain that was removed."""

    audit: int = meaning("The number of its audit row.")
    target: str = meaning("The address or domain.")


class Suppressed(Shape):
    """What was added."""

    audit: int = meaning("The number of its audit row.")
    suppressed: int = meaning("How many addresses or domains.")


class Volume(Shape):
    """A volume of PostgreSQL."""

    host: str = meaning("Its host.")
    path: str = meaning("Its folder.")
    free: int = meaning("Free octets.")
    size: int = meaning("Octets in all.")
    fresh: bool = meaning("Whether reports still come.")
    seconds: float = meaning("Seconds since the report.")


class VolumesReported(Shape):
    """What `volumes report --once` reported."""

    host: str = meaning("The host.")
    paths: list[str] = meaning("The folders.")


class VolumesForgotten(Shape):
    """What `volumes forget` removed."""

    host: str = meaning("The host.")


class Migrated(Shape):
    """What `migrate` has done."""

    applied: list[str] = meaning("Migrations.")
    leaves: list[str] = meaning("Leaves that were made.")


class AccountsInstalled(Shape):
    """The tables of account mail, as they were installed."""

    schema_: str = meaning("Their schema.", alias="schema")
    applied: list[str] = meaning("Migrations; none if they were there.")


class AccountsRemoved(Shape):
    """The tables of account mail that are removed, or would be."""

    schema_: str = meaning("Their schema.", alias="schema")
    accounts: int = meaning("Its accounts.")
    tokens: int = meaning("Its tokens.")
    removed: bool = meaning("Whether they are gone; false for the preview.")


class DatabaseStarted(Shape):
    """The embedded PostgreSQL."""

    uri: str = meaning("Its libpq URI.")


class DatabaseStopped(Shape):
    """Whether the embedded PostgreSQL was stopped."""

    stopped: bool = meaning("false: none ran.")


class DatabaseStatus(Shape):
    """The embedded PostgreSQL; only `running` where none runs."""

    running: bool = meaning("Whether a server runs.")
    ready: bool | None = meaning("Whether it accepts connections.", default=None)
    pid: int | None = meaning("Its process.", default=None)
    uri: str | None = meaning("Its libpq URI.", default=None)
    data: str | None = meaning("Its data directory.", default=None)
    version: int | None = meaning("Its major version.", default=None)


class Configuration(RootModel[dict[str, Any]]):
    """The sections of queued.yaml (config/queued.schema.json), defaults filled in, passwords masked."""


class SigningKey(Shape):
    """A key that was made."""

    name: str = meaning("The name of its TXT record.")
    record: str = meaning("The text of its TXT record.")
    file: str = meaning("The file of the private key.")


class SigningKeyChecked(Shape):
    """A key of queued.yaml, compared with DNS."""

    name: str = meaning("The name of its TXT record.")
    fault: str | None = meaning("What is wrong; null: nothing.")
