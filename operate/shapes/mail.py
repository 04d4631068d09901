"""mail — the forms of queued, held and finished mail in JSON"""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from operate.shapes.shape import Shape, meaning

type State = Literal["HOLD", "SCHEDULED", "ACTIVE", "SENDING", "DEFER", "DELETE", "BOUNCE"]


class Recipient(Shape):
    """A recipient in the queue."""

    id: int = meaning("The recipient's number.")
    message: UUID = meaning("Its message.")
    state: State = meaning("What it waits for.")
    received: datetime = meaning("When it was accepted.")
    size: int = meaning("Octets of the message.")
    priority: int = meaning("-9 to 9; above 0 urgent, below 0 bulk.")
    retry_count: int = meaning("How often it was tried.")
    next_retry: datetime = meaning("When it is due.")
    last_retry: datetime | None = meaning("When it was last tried.")
    last_error: str | None = meaning("Why the last try failed.")
    sender: str = meaning("The envelope sender; empty is the null sender.")
    recipient: str = meaning("The address.")
    transport: str = meaning("A transport of queued.yaml.")
    partition: str | None = meaning("The partition id.")
    quarantine: str | None = meaning("The quarantine, if it is held in one.")
    jobid: str | None = meaning("The application's own id for a mailing.")
    worker: str | None = meaning("The worker that claimed it last.")


class Attempt(Shape):
    """One try at a recipient."""

    ts: datetime = meaning("When it ended.")
    retry_count: int = meaning("Which try it was.")
    worker: str | None = meaning("Who tried.")
    remote: str | None = meaning("The host.")
    outcome: str = meaning("delivered, deferred, failed, or lease_expired where the worker died.")
    scope: str | None = meaning("What the outcome is about: recipient, message, destination or us.")
    uncertain: bool | None = meaning("Whether the host may have accepted the message.")
    reply_code: int | None = meaning("The code of the reply.")
    reply_text: str | None = meaning("The text of the reply or failure.")
    tls: str | None = meaning("The TLS version and cipher.")
    source: str | None = meaning("Our own address.")
    seconds: float | None = meaning("How long it took.")


class RecipientWithTries(Recipient):
    """A recipient in the queue with every try."""

    why: str = meaning("Why it is not delivered yet, in one sentence.")
    header: dict[str, str] = meaning("Fields of its message's header.")
    attempts: list[Attempt] = meaning("Every try, the first first.")


class Group(Shape):
    """Recipients with the same values."""

    value: dict[str, str | None] = meaning("The columns, and their values.")
    recipients: int = meaning("How many.")
    messages: int = meaning("Of how many messages.")
    bytes: int = meaning("Their size together.")
    oldest: datetime | None = meaning("When the oldest was received.")
    next_retry: datetime | None = meaning("When the next is due.")


class Destination(Shape):
    """Recipients of one domain by age; the first line, without a domain, is all of them."""

    domain: str | None = meaning("The recipients' domain.")
    total: int = meaning("How many.")
    minutes: dict[str, int] = meaning("How many that wait for up to 5, 10, 20 … minutes; 1280+ is longer.")


class Top(Shape):
    """The queue at one moment."""

    states: dict[str, int] = meaning("Recipients by state.")
    destinations: dict[str, int] = meaning("Recipients of the fullest destinations.")


class Event(Shape):
    """One event in the history of a message."""

    ts: datetime | None = meaning("When; null is now.")
    id: int = meaning("The recipient's number.")
    recipient: str | None = meaning("The address, or @domain.")
    event: str = meaning("What happened.")
    details: str = meaning("Details in words.")
    conversation: str | None = meaning("What was said in a try that failed, a line each, where its transport keeps it.")


class Command(Shape):
    """One command that changed the queue, suspends, suppressions or schedules."""

    id: int = meaning("The number of its audit row.")
    ts: datetime = meaning("When it began.")
    who: str = meaning("On whose behalf: a principal, or the login at the database.")
    login: str = meaning("The login at the database.")
    operator: str | None = meaning("The login at the operating system.")
    verb: str = meaning("What it did.")
    condition: str = meaning("To which recipients, or what it named.")
    argument: dict[str, Any] = meaning("The verb's own values.")
    reason: str | None = meaning("Why.")
    undoes: int | None = meaning("The command that it undid.")
    wanted: int = meaning("How many recipients matched, or rows of settings were named.")
    done: int = meaning("How many were changed.")
    skipped: int = meaning("How many were left alone.")
    finished: datetime | None = meaning("When it came to its end; null: interrupted or under way.")
    undone: datetime | None = meaning("When it was undone.")


class Preview(Shape):
    """What a command would change."""

    wanted: int = meaning("How many recipients.")
    messages: int = meaning("Of how many messages.")
    bytes: int = meaning("Their size together.")
    sample: list[Recipient] = meaning("The first of them.")


class Changed(Shape):
    """What a command has changed."""

    audit: int = meaning("The number of its audit row.")
    wanted: int = meaning("How many recipients matched.")
    done: int = meaning("How many were changed.")
    skipped: int = meaning("How many were left alone, because a worker had claimed them.")
    gone: int = meaning("How many no longer matched when their turn came.")


class UndoPreview(Shape):
    """What `queue undo` would change back."""

    wanted: int = meaning("How many recipients.")
    verb: str = meaning("What the earlier command did.")


class Quarantine(Shape):
    """A quarantine."""

    id: str | None = meaning("Its id; null is mail that is held without a quarantine.")
    description: str | None = meaning("What it is for.")
    retention: str | None = meaning("How long it keeps mail, such as 30d; null: until a reviewer decides.")
    reviewers: list[str] = meaning("The roles that may decide; empty: all reviewers.")
    may: bool = meaning("Whether this login may decide.")
    recipients: int = meaning("How many are held.")
    messages: int = meaning("Of how many messages.")
    bytes: int = meaning("Their size together.")
    oldest: datetime | None = meaning("When the oldest was received.")
    latest: datetime | None = meaning("When the latest was received.")


class _Held(Shape):
    id: int = meaning("The recipient's number.")
    message: UUID = meaning("Its message.")
    quarantine: str | None = meaning("Its quarantine.")
    received: datetime = meaning("When it was accepted.")
    size: int = meaning("Octets of the message.")
    sender: str = meaning("The envelope sender; empty is the null sender.")
    recipient: str = meaning("The address.")
    reason: str | None = meaning("Why it is held.")
    rule: str | None = meaning("The policy rule that held it.")
    senderip: str | None = meaning("The client's address.")
    senderhelo: str | None = meaning("The client's name in HELO.")
    saslusername: str | None = meaning("The user.")


class Held(_Held):
    """A held recipient."""

    subject: str | None = meaning("The Subject field; null without a body.")


class Part(Shape):
    """A part of a message."""

    type: str = meaning("Its media type.")
    name: str = meaning("The name it gives itself.")
    size: int = meaning("Octets.")
    attached: bool = meaning("Whether it is an attachment.")


class HeldMessage(_Held):
    """A held message, made safe to look at."""

    header: dict[str, str] = meaning("Fields of its header.")
    text: str = meaning("Its text.")
    parts: list[Part] = meaning("Its parts.")
    notes: list[str] = meaning("What was left out, or is odd.")


class Taken(Shape):
    """A message that the sink of `pillarbox up --sink` has taken."""

    number: int = meaning("Its number in the sink.")
    message: UUID | None = meaning("Its id in our queue.")
    received: datetime = meaning("When the sink took it.")
    sender: str = meaning("The envelope sender; empty is the null sender.")
    recipients: list[str] = meaning("The addresses.")
    size: int = meaning("Octets of the message.")
    subject: str = meaning("Its subject.")
    messageid: str | None = meaning("Its Message-ID.")
    file: str = meaning("The file that has its content.")


class TakenMessage(Taken):
    """The same, made safe to look at."""

    header: dict[str, str] = meaning("Fields of its header.")
    text: str = meaning("Its text.")
    parts: list[Part] = meaning("Its parts.")
    notes: list[str] = meaning("What was left out, or is odd.")


class Rescanned(Shape):
    """The content check's verdict on a held recipient."""

    id: int = meaning("The recipient's number.")
    sender: str = meaning("The envelope sender.")
    recipient: str = meaning("The address.")
    action: str = meaning("rspamd's action, or why there is none.")
    score: float | None = meaning("rspamd's score.")
    symbols: dict[str, float] = meaning("rspamd's symbols with their weights.")
    clean: bool = meaning("Whether it may be released.")


class RescanEnd(Shape):
    """The last line of a rescan."""

    audit: int | None = meaning("The number of its audit row, with --release --yes.", default=None)
    wanted: int = meaning("How many recipients matched.")
    clean: int = meaning("How many are clean.")
    done: int = meaning("How many were released.")


class RescanPart(RescanEnd):
    """The verdicts of one request, and how to go on."""

    data: list[Rescanned] = meaning("The verdicts.")
    next: str | None = meaning("Where the next request goes on, as `after`; null: all were looked at.")


class Exported(Shape):
    """The files of an export."""

    written: int = meaning("Messages written.")
    present: int = meaning("Messages whose file was there.")
    bodiless: int = meaning("Messages without a body.")


class Digest(Shape):
    """The digest of a quarantine."""

    quarantine: str = meaning("Its id.")
    recipients: int = meaning("How many are new.")
    message: UUID | None = meaning("The message that was queued.")
    text: str | None = meaning("The text of the digest.")
    said: str = meaning("What was done, or why nothing was.")


class Retained(Shape):
    """The mail of one rule of retention."""

    quarantine: str | None = meaning("The quarantine; null is all others.")
    keep: str | None = meaning("How long it is kept, such as 30d; null: until a reviewer decides.")
    recipients: int | None = meaning("How many have been held for longer.", default=None)
    bytes: int | None = meaning("Their size together.", default=None)
    oldest: datetime | None = meaning("When the oldest was received.", default=None)
    audit: int | None = meaning("With --yes: the number of its audit row.", default=None)
    done: int | None = meaning("With --yes: how many were deleted.", default=None)
    gone: int | None = meaning("With --yes: how many no longer matched when their turn came.", default=None)


class RetainedAudit(Shape):
    """Audit rows that are older than their retention: the last line."""

    table: Literal["audit"] = meaning("Always audit.")
    keep: str | None = meaning("How long they are kept.", default=None)
    commands: int | None = meaning("How many are older.", default=None)
    audit: int | None = meaning("With --yes: the number of its own audit row.", default=None)
    done: int | None = meaning("With --yes: how many were deleted.", default=None)


class Finished(Shape):
    """A finished recipient in the lake."""

    id: int = meaning("The recipient's number.")
    message: UUID = meaning("Its message.")
    received: datetime = meaning("When it was accepted.")
    finished: datetime = meaning("When it was finished.")
    result: str = meaning("How it finished (docs/reference/results.md).")
    sender: str = meaning("The envelope sender; empty is the null sender.")
    recipient: str = meaning("The address.")
    msgid: str | None = meaning("The Message-ID in the message's header.")
    subject: str | None = meaning("The subject in the message's header, where subjects are kept.")
    size: int = meaning("Octets of the message.")
    user: str | None = meaning("The user that submitted it.")
    transport: str = meaning("A transport of queued.yaml.")
    jobid: str | None = meaning("The application's own id for a mailing.")
    retry_count: int = meaning("How often it was tried.")
    last_error: str | None = meaning("Why the last try failed.")


class ErasePreview(Shape):
    """What names a person's address."""

    queued_to: int = meaning("Recipients queued to the address.")
    queued_from: int = meaning("Recipients queued from it.")
    sending: int = meaning("How many of them a worker is sending.")
    sent_to: int = meaning("Finished recipients to the address, in PostgreSQL.")
    sent_from: int = meaning("Finished recipients from it.")
    notices: int = meaning("Notifications to or about it that wait to be queued.")
    suppressed: bool = meaning("Whether the address gets no mail.")
    schedules: list[str] = meaning("Recurring mail that names it: it has to be removed first.")
    reports: int = meaning("Rows of stored reports that name it.")
    commands: int = meaning("Rows of the audit that name it.")
    unfinished: int | None = meaning("The audit row of an erasure of the same address that was cut off.")
    lake: int | None = meaning("Finished recipients in the lake; null with --no-lake.")


class ErasedLake(Shape):
    """What was erased in the lake."""

    deleted: int = meaning("Rows that were deleted.")
    changed: int = meaning("Rows of others, in whose texts the address was replaced.")
    days: int = meaning("Days of tables that were replaced.")
    files: int = meaning("Files that were removed.")
    left: int = meaning("Files without use that are too young to be removed: `analytics cleanup` does it.")


class Erased(Shape):
    """What was erased."""

    audit: int = meaning("The number of the audit row, which has a hash of the address.")
    queued: int = meaning("Queued recipients that were deleted.")
    history: int = meaning("Rows of attempts and archive that were deleted.")
    changed: int = meaning("Rows of others, in whose texts the address was replaced.")
    bodies: int = meaning("Bodies that were deleted.")
    kept: int = meaning("Bodies that other recipients need.")
    notices: int = meaning("Waiting notifications that were deleted.")
    reports: int = meaning("Sections of stored reports that were changed.")
    commands: int = meaning("Rows of the audit in which the address was replaced.")
    lake: ErasedLake | None = meaning("The same in the lake; null with --no-lake.")


class DeadLetter(Shape):
    """A recipient that finished without success."""

    id: int = meaning("Its number in the archive.")
    message: UUID = meaning("Its message.")
    finished: datetime = meaning("When it finished.")
    result: str = meaning("How (docs/reference/results.md).")
    sender: str = meaning("The envelope sender; empty is the null sender.")
    recipient: str = meaning("The address.")
    received: datetime = meaning("When it was accepted.")
    size: int = meaning("Octets of the message.")
    retry_count: int = meaning("How often it was tried.")
    last_error: str | None = meaning("Why.")
    worker: str | None = meaning("Who finished it.")
    partition: str | None = meaning("The partition id.")
    transport: str = meaning("The transport.")
    jobid: str | None = meaning("The application's own id for a mailing.")
    body: bool = meaning("Whether the body is kept, so that it can be sent once more.")
    requeued: bool = meaning("Whether it was sent once more.")


class DeadLetterWithTries(DeadLetter):
    """A dead letter with every try."""

    attempts: list[Attempt] = meaning("Every try, the first first.")


class RequeuePreview(Shape):
    """What `deadletters requeue` would send once more."""

    wanted: int = meaning("How many.")
    ids: list[int] = meaning("Which.")


class Requeued(Shape):
    """What `deadletters requeue` has sent once more."""

    wanted: int = meaning("How many were asked for.")
    requeued: int = meaning("How many were queued.")
    gone: int = meaning("How many have no body any more.")
