"""table — the mistakes of a new operator, and the one line that answers each

Owns: the rows, as a person types them: command line, the files that are not the usual ones, answer, exit status.
Guarantees: the usual files are right. In an answer, … is any text within the line: a list that grows with the program,
    or PostgreSQL's own words about the way to it.
See: test_mistakes.py, which types them. Words in capitals stand for what differs from run to run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

USAGE, FAILED, EX_USAGE, UNAVAILABLE, EX_TEMPFAIL, CONFIG = 2, 1, 64, 69, 75, 78  # sysexits.h from 64 on


@dataclass(frozen=True)
class Mistake:
    """One row. typed: the command. said: its only line on standard error. files: text by path, None for none."""

    name: str
    typed: str
    said: str
    status: int
    files: dict[str, str | None] = field(default_factory=dict)


def smtpd(name: str, text: str, said: str, status: int = CONFIG) -> Mistake:
    """A mistake in smtpd.yaml, besides the usual database."""
    return Mistake(name, "smtpd", f"smtpd: {said}", status, {"config/smtpd.yaml": f"ENVIRONMENT\n{text}\n"})


def queued(name: str, text: str, said: str) -> Mistake:
    """A mistake in queued.yaml, besides the usual database."""
    files: dict[str, str | None] = {"config/queued.yaml": f"ENVIRONMENT\n{text}\n"}
    return Mistake(name, "queued --worker all", f"queued: {said}", CONFIG, files)


def of_one_file(name: str, daemon: str, text: str, said: str) -> Mistake:
    """A mistake in the file of httpd or of collect, besides the usual database."""
    typed = {"collect": "pillarbox collect"}.get(daemon, daemon)
    return Mistake(name, typed, f"{daemon}: {said}", CONFIG, {f"config/{daemon}.yaml": f"ENVIRONMENT\n{text}\n"})


def yaml(name: str, text: str, said: str) -> Mistake:
    """A file that is not YAML."""
    return Mistake(name, "smtpd", f"smtpd: config/smtpd.yaml:{said}", CONFIG, {"config/smtpd.yaml": text})


def database(name: str, uri: str, said: str, status: int = UNAVAILABLE, typed: str = "smtpd") -> Mistake:
    """A database that cannot be used."""
    files: dict[str, str | None] = {
        f"config/{file}.yaml": f"environment: {{log: {{level: error}}, database: {{uri: '{uri}'}}}}\n{more}\n"
        for file, more in (
            ("smtpd", "servers: [{listeners: [{port: 0}]}]"),
            ("queued", "workers: [{id: all, where: 'true'}]"),
        )
    }
    return Mistake(name, typed, said, status, files)


_SPANS: Final = "whole numbers with d, h, m, s or ms in that order (90s, 1h30m), at most 36500d"
_IN_FILES: Final = "whole numbers with d, h, m, s or ms in that order (1h30m), or whole seconds, at most 36500d"
_PLACE: Final = "HOST:PORT such as 127.0.0.1:9464 or [::1]:9464"
_RELAY: Final = "is not a host; allowed: NAME, NAME:PORT, [IPV6] or [IPV6]:PORT; see `pillarbox relay --help`"
_ROWS: Final = "is not the number of a row; allowed: 1 to 9223372036854775807"
_DAYS: Final = "allowed: YYYY-MM-DD, from 1970-01-01 to 9998-12-31"
_ENDLESS: Final = "9" * 5000
_TOO_LONG: Final = "99999999999999999999"
_GRANT: Final = "allowed: the owner of the schema, or a role with the rights of docs/how-to/rights/grant-roles.md"
_LISTENS: Final = "servers: [{listeners: [{port: 0}], tls: {certificate: CERTIFICATE, privatekey: KEY}}]"
_ALL: Final = "workers: [{id: all, where: 'true'}]"


def _tls(name: str, certificate: str, key: str, said: str) -> Mistake:
    return smtpd(name, _LISTENS.replace("CERTIFICATE", certificate).replace("KEY", key), f"config/smtpd.yaml: {said}")


TYPED: Final = [
    Mistake(
        "wrong verb",
        "pillarbox queu list",
        'pillarbox: argument VERB: "queu" is unknown; allowed: …; did you mean queue?; see `pillarbox --help`',
        USAGE,
    ),
    Mistake(
        "no verb",
        "pillarbox",
        "pillarbox: a VERB is required; allowed: demo, init, up, …, completion; see `pillarbox --help`",
        USAGE,
    ),
    Mistake(
        "no verb of a verb",
        "pillarbox queue",
        "pillarbox queue: a VERB is required; allowed: list, group, …, undo; see `pillarbox queue --help`",
        USAGE,
    ),
    Mistake(
        "wrong verb of a verb",
        "pillarbox queue relase 1",
        'pillarbox queue: argument VERB: "relase" is unknown; allowed: …; did you mean release?; see `pillarbox queue --help`',
        USAGE,
    ),
    Mistake(
        "mistyped option",
        "pillarbox queue list --limt 5",
        "pillarbox queue list: unrecognized arguments: --limt; did you mean --limit?; see `pillarbox queue list --help`",
        USAGE,
    ),
    Mistake(
        "option before the verb",
        "pillarbox --config config queue list",
        "pillarbox: --config comes before the verb; allowed: the verb first, as in `pillarbox queue list --json`; see `pillarbox --help`",
        USAGE,
    ),
    Mistake(
        "option of psql as one of ours",
        "pillarbox psql -c 'SELECT 1'",
        'pillarbox psql: unrecognized arguments: -c; options of psql come after --, as in `pillarbox psql -- -c "SELECT 1"`; see `pillarbox psql --help`',
        USAGE,
    ),
    Mistake(
        "statement for psql without -c",
        "pillarbox psql 'SELECT 1'",
        'pillarbox psql: "SELECT 1" is not an option of psql; allowed: SQL after -c, as in `pillarbox psql -- -c "SELECT 1"`; see `pillarbox psql --help`',
        USAGE,
    ),
    Mistake(
        "statement for psql after an option without a value",
        "pillarbox psql -- -At 'SELECT 1'",
        'pillarbox psql: "SELECT 1" is not an option of psql; allowed: SQL after -c, as in `pillarbox psql -- -c "SELECT 1"`; see `pillarbox psql --help`',
        USAGE,
    ),
    Mistake(
        "user without a place for users",
        "pillarbox user add bob",
        "pillarbox: authentication: smtpd.yaml names no place for users; allowed: authentication.file: PATH, authentication.source: table, or `pillarbox user hash` for smtpd.yaml itself",
        CONFIG,
    ),
    Mistake(
        "option left out",
        "pillarbox queue delay --all",
        "pillarbox queue delay: the following arguments are required: --for; see `pillarbox queue delay --help`",
        USAGE,
    ),
    Mistake(
        "word for a number",
        "pillarbox deadletters requeue all",
        'pillarbox deadletters requeue: argument ID: "all" is neither a number in the archive nor a message id; see `pillarbox deadletters requeue --help`',
        USAGE,
    ),
    Mistake(
        "duration without a unit",
        "pillarbox queue delay --all --for 90",
        f'pillarbox queue delay: argument --for: "90" has no unit; allowed: {_SPANS}; see `pillarbox queue delay --help`',
        USAGE,
    ),
    Mistake(
        "no duration",
        "pillarbox suspend add --all --reason x --for soon",
        f'pillarbox suspend add: argument --for: "soon" is not a duration; allowed: {_SPANS}; see `pillarbox suspend add --help`',
        USAGE,
    ),
    Mistake(
        "priority out of range",
        "pillarbox queue priority --all --to 12",
        'pillarbox queue priority: argument --to: "12" is not a number from -9 to 9; see `pillarbox queue priority --help`',
        USAGE,
    ),
    Mistake(
        "everything by accident",
        "pillarbox queue delete --yes",
        "pillarbox: delete: give a condition, or --all for every recipient",
        FAILED,
    ),
    Mistake(
        "move to an unknown transport",
        "pillarbox queue move --all --transport slwo --yes",
        'pillarbox: --transport: "slwo" is not a transport of config/queued.yaml; allowed: default, slow',
        EX_USAGE,
    ),
    Mistake(
        "move to an unknown partition",
        "pillarbox queue move --all --partition 7 --yes",
        'pillarbox: --partition: "7" is not a partition id of config/smtpd.yaml; allowed: 1 to 6',
        EX_USAGE,
    ),
    Mistake(
        "suppress for a reason of two lines",
        "pillarbox suppress add bob@example.com --reason 'one\ntwo'",
        'pillarbox suppress add: argument --reason: "one\\ntwo" is not a valid reason; allowed: up to 1000 printable characters; see `pillarbox suppress add --help`',
        USAGE,
    ),
    Mistake(
        "suspend an unknown transport",
        "pillarbox suspend add --transport slwo --reason x",
        'pillarbox: --transport: "slwo" is not a transport of config/queued.yaml; allowed: default, slow',
        EX_USAGE,
    ),
    Mistake(
        "schedule by an unknown transport",
        "pillarbox schedule add x --every '0 9 * * *' --from a@example.com --to b@example.com --transport slwo",
        'pillarbox: --transport: "slwo" is not a transport of config/queued.yaml; allowed: default, slow',
        EX_USAGE,
    ),
    Mistake(
        "user with an unknown transport",
        "pillarbox user add bob --transport slwo",
        'pillarbox: --transport: "slwo" is not a transport of config/queued.yaml; allowed: default, slow',
        EX_USAGE,
    ),
    Mistake(
        "requeue what is no dead letter",
        "pillarbox deadletters requeue 98 99 --yes",
        "pillarbox: deadletters requeue: not dead letters in the history: 98, 99; nothing was changed; `pillarbox deadletters list` lists them",
        FAILED,
    ),
    Mistake(
        "group by a mistyped column",
        "pillarbox queue group recipientdoman",
        'pillarbox: queue group: "recipientdoman" is not a column to group by; allowed: …, metadata.KEY; did you mean recipientdomain?',
        FAILED,
    ),
    Mistake(
        "group by nothing",
        "pillarbox queue group",
        "pillarbox queue group: the following arguments are required: COLUMN[,COLUMN…]; see `pillarbox queue group --help`",
        USAGE,
    ),
    Mistake(
        "suppress what a missing file lists",
        "pillarbox suppress import nowhere.txt --reason old",
        "pillarbox: nowhere.txt: cannot be read: No such file or directory; allowed: a text file in UTF-8",
        FAILED,
    ),
    Mistake(
        "cron with too few fields, before the message is typed",
        "pillarbox schedule add x --every '0 9 * *' --from a@example.com --to b@example.com",
        'pillarbox: --every: "0 9 * *"…; allowed: …',
        FAILED,
    ),
    Mistake(
        "time that is over, before the message is typed",
        "pillarbox schedule add --at 2020-01-01T00:00 --from a@example.com --to b@example.com",
        'pillarbox: --at: "2020-01-01T00:00" has passed; allowed: a time to come such as 2026-12-24T18:00 or 2026-12-24T18:00+01:00',
        FAILED,
    ),
    Mistake(
        "completion of no shell",
        "pillarbox completion",
        "pillarbox completion: the following arguments are required: SHELL; see `pillarbox completion --help`",
        USAGE,
    ),
    Mistake(
        "trace an address",
        "pillarbox queue trace ann@example.com",
        'pillarbox: queue trace: "ann@example.com" is neither a message id nor the number of a recipient; `pillarbox queue list recipient=ann@example.com` lists its queued mail; write a Message-ID in <>',
        FAILED,
    ),
    Mistake(
        "show what is not queued",
        "pillarbox queue show 999",
        "pillarbox: queue show: 999 is not in the queue: see `pillarbox queue trace 999`",
        FAILED,
    ),
    Mistake(
        "undo what was not done",
        "pillarbox queue undo 999 --yes",
        "pillarbox: queue undo: audit row 999 does not exist; `pillarbox queue audit` lists them",
        FAILED,
    ),
    Mistake(
        "move a partition to a leaf that is not there",
        "pillarbox partitions move 4 nosuch",
        "pillarbox: leaf nosuch: not there; there are 123, 456 and def",
        FAILED,
    ),
    Mistake(
        "unknown worker",
        "queued --worker al",
        'queued: config/queued.yaml: workers: worker "al" does not exist; allowed: all',
        CONFIG,
    ),
    Mistake(
        "undo by a number that no row can have",
        f"pillarbox queue undo {_TOO_LONG} --yes",
        f'pillarbox queue undo: argument AUDIT: "{_TOO_LONG}" {_ROWS}; see `pillarbox queue undo --help`',
        USAGE,
    ),
    Mistake(
        "one audit row by a word",
        "pillarbox queue audit last",
        f'pillarbox queue audit: argument AUDIT: "last" {_ROWS}; see `pillarbox queue audit --help`',
        USAGE,
    ),
    Mistake(
        "resume by a number that no row can have",
        f"pillarbox suspend remove {_TOO_LONG}",
        f'pillarbox suspend remove: argument ID: "{_TOO_LONG}" {_ROWS}; see `pillarbox suspend remove --help`',
        USAGE,
    ),
    Mistake(
        "resume what is not suspended",
        "pillarbox suspend remove 99",
        "pillarbox: suspend remove: suspend 99 does not exist; allowed: those of `suspend list`",
        FAILED,
    ),
    Mistake(
        "suspend with the option of another verb",
        "pillarbox suspend add --all --reason x --yes",
        "pillarbox suspend add: unrecognized arguments: --yes; …",
        USAGE,
    ),
    Mistake(
        "no rows",
        "pillarbox queue list --limit 0",
        'pillarbox queue list: argument --limit: "0" is not a number from 1 to 1000000000; see `pillarbox queue list --help`',
        USAGE,
    ),
    Mistake(
        "more rows than int() reads",
        f"pillarbox queue list --limit {_ENDLESS}",
        f'pillarbox queue list: argument --limit: "{_ENDLESS[:59]}…" is not a number from 1 to 1000000000; '
        "see `pillarbox queue list --help`",
        USAGE,
    ),
    Mistake(
        "a priority of more digits than int() reads",
        f"pillarbox queue priority 1 --to {_ENDLESS} --yes",
        f'pillarbox queue priority: argument --to: "{_ENDLESS[:59]}…" is not a number from -9 to 9; '
        "see `pillarbox queue priority --help`",
        USAGE,
    ),
    Mistake(
        "a port that TCP does not have",
        "pillarbox sendmail --server 127.0.0.1:99999 joe@example.com",
        'sendmail: "127.0.0.1:99999" is not a server; allowed: HOST:PORT',
        EX_USAGE,
    ),
    Mistake(
        "a message of more digits than int() reads",
        f"pillarbox sink show {_ENDLESS}",
        f'pillarbox: sink show: message "{_ENDLESS[:59]}…" is not in …; allowed: a number of `pillarbox sink show`, …',
        FAILED,
    ),
    Mistake(
        "a user who may send nothing",
        "pillarbox user add bob --messages 0",
        'pillarbox user add: argument --messages: "0" is not a number from 1 to 1000000000; see `pillarbox user add --help`',
        USAGE,
    ),
    Mistake(
        "a principal that may send nothing",
        "pillarbox principal change ann --messages 0",
        'pillarbox principal change: argument --messages: "0" is not a number from 1 to 1000000000; '
        "see `pillarbox principal change --help`",
        USAGE,
    ),
    Mistake(
        "a schedule of a priority that mail does not have",
        "pillarbox schedule add x --every '0 9 * * *' --from a@example.com --to b@example.com --priority 10",
        'pillarbox schedule add: argument --priority: "10" is not a number from -9 to 9; see `pillarbox schedule add --help`',
        USAGE,
    ),
    Mistake(
        "no events in a request",
        "pillarbox webhooks add app https://example.com/ --batch 0",
        'pillarbox webhooks add: argument --batch: "0" is not a number from 1 to 1000; see `pillarbox webhooks add --help`',
        USAGE,
    ),
    Mistake(
        "list after a word",
        "pillarbox queue list --after word",
        'pillarbox queue list: argument --after: "word" is not a number from 0 to 9223372036854775807; '
        "see `pillarbox queue list --help`",
        USAGE,
    ),
    Mistake(
        "a greeting that is not a reply code",
        "pillarbox sink --greeting 99999",
        'pillarbox sink: argument --greeting: "99999" is not a number from 200 to 599; see `pillarbox sink --help`',
        USAGE,
    ),
    Mistake(
        "history of more days than the calendar has",
        "pillarbox analytics generate --days 800000",
        'pillarbox analytics generate: argument --days: "800000" is not a number from 1 to 3650; '
        "see `pillarbox analytics generate --help`",
        USAGE,
    ),
    Mistake(
        "history with a seed that NumPy refuses",
        "pillarbox analytics generate --seed -1",
        'pillarbox analytics generate: argument --seed: "-1" is not a number from 0 to 1000000000; '
        "see `pillarbox analytics generate --help`",
        USAGE,
    ),
    Mistake(
        "a report of the calendar's last days",
        "pillarbox analytics report --until 9999-12-31",
        f'pillarbox analytics report: argument --until: "9999-12-31" is not a day; {_DAYS}; '
        "see `pillarbox analytics report --help`",
        USAGE,
    ),
    Mistake(
        "a report of the calendar's first days",
        "pillarbox analytics report --until 0001-01-01",
        f'pillarbox analytics report: argument --until: "0001-01-01" is not a day; {_DAYS}; '
        "see `pillarbox analytics report --help`",
        USAGE,
    ),
    Mistake(
        "a lake whose name is part of another's for the catalog",
        "pillarbox analytics search --lake a%20b size=1",
        'pillarbox: --lake: "a%20b" cannot be a lake; allowed: a folder without # ? % * [ ] { } \\ in its path',
        FAILED,
    ),
    Mistake(
        "release by a number of more digits than int() reads",
        f"pillarbox quarantine release {_ENDLESS}",
        "pillarbox: quarantine release: allowed: up to 1000 ids, each at most 9223372036854775807",
        FAILED,
    ),
    Mistake(
        "show by a number that no row can have",
        f"pillarbox queue show {_TOO_LONG}",
        f'pillarbox: queue show: "{_TOO_LONG}" is neither the number of a recipient nor a message id',
        FAILED,
    ),
    Mistake(
        "hold what is not queued",
        "pillarbox queue hold 5 6 --yes",
        "pillarbox: hold: 5, 6 not in the queue: see `pillarbox queue trace 5`",
        FAILED,
    ),
    Mistake(
        "show what is not held",
        "pillarbox quarantine show 9999",
        "pillarbox: quarantine show: recipient 9999 does not exist",
        FAILED,
    ),
    Mistake(
        "relay with its user before @",
        "pillarbox relay apikey@smtp.example.com",
        f'pillarbox relay: argument HOST[:PORT]: "apikey@smtp.example.com" {_RELAY}',
        USAGE,
    ),
    Mistake(
        "relay as a URL",
        "pillarbox relay smtp://smtp.example.com",
        f'pillarbox relay: argument HOST[:PORT]: "smtp://smtp.example.com" {_RELAY}',
        USAGE,
    ),
    Mistake(
        "relay with a port that is too large",
        "pillarbox relay smtp.example.com:99999",
        f'pillarbox relay: argument HOST[:PORT]: "smtp.example.com:99999" {_RELAY}',
        USAGE,
    ),
    Mistake(
        "relay with the name of a port",
        "pillarbox relay smtp.example.com:submission",
        f'pillarbox relay: argument HOST[:PORT]: "smtp.example.com:submission" {_RELAY}',
        USAGE,
    ),
    Mistake(
        "relay for an unknown transport",
        "pillarbox relay smtp.example.com --transport slwo",
        'pillarbox: --transport: "slwo" is not a transport of config/queued.yaml; allowed: default, slow',
        EX_USAGE,
    ),
    Mistake(
        "relay without a password",
        "pillarbox relay smtp.example.com --user apikey",
        "pillarbox: the password is empty; nothing was changed",
        FAILED,
    ),
    Mistake(
        "recover by a log that is not there",
        "pillarbox recover settle nowhere.log --dry-run",
        "pillarbox: recover settle: nowhere.log: cannot be read: No such file or directory; allowed: …",
        FAILED,
    ),
    Mistake(
        "end a recovery that was not begun",
        "pillarbox recover release --dry-run",
        "pillarbox: recover: no recovery is under way",
        FAILED,
    ),
    Mistake(
        "key for a stranger",
        "pillarbox key add ann",
        'pillarbox: PRINCIPAL: principal "ann" does not exist; `pillarbox principal list` shows them',
        FAILED,
    ),
    Mistake(
        "principal of an unknown kind",
        "pillarbox principal add ann --kind robot",
        'pillarbox principal add: argument --kind: "robot" is unknown; allowed: person, application; see `pillarbox principal add --help`',
        USAGE,
    ),
    Mistake(
        "erase half an address",
        "pillarbox erase joe --no-lake --dry-run",
        'pillarbox: ADDRESS: "joe": address has no domain; allowed: local-part@domain',
        FAILED,
    ),
    Mistake(
        "erase without a word about the lake",
        "pillarbox erase joe@example.com",
        "pillarbox erase: one of the arguments --lake --no-lake is required; see `pillarbox erase --help`",
        USAGE,
    ),
    Mistake(
        "completion of an unknown shell",
        "pillarbox completion fish",
        'pillarbox completion: argument SHELL: "fish" is unknown; allowed: bash, zsh; see `pillarbox completion --help`',
        USAGE,
    ),
    Mistake(
        "init over a configuration",
        "pillarbox init config --hostname mail.example.com --direct",
        "pillarbox: …config is not an empty folder; allowed: a new or empty one",
        FAILED,
    ),
    Mistake(
        "init for half a host name",
        "pillarbox init fresh --hostname mail --direct --domain example.com",
        'pillarbox: --hostname: "mail" is not a fully qualified host name; allowed: a name such as mail.example.com',
        FAILED,
    ),
    Mistake(
        "sendmail without smtpd and without its spool",
        "pillarbox sendmail --server 127.0.0.1:1 --spool nowhere bob@example.com",
        "sendmail: 127.0.0.1:1: Connection refused; and the spool nowhere: No such file or directory; nothing was kept; --server says where smtpd listens",
        EX_TEMPFAIL,
    ),
    Mistake(
        "--config names a file",
        "pillarbox queue list --config config/smtpd.yaml",
        "pillarbox: config/smtpd.yaml: is a file; allowed: the folder that holds smtpd.yaml",
        CONFIG,
    ),
    Mistake(
        "--config names a folder",
        "smtpd --config config",
        "smtpd: config: is a directory; allowed: a YAML file",
        CONFIG,
    ),
    Mistake(
        "--config names nothing",
        "queued --config confg/queued.yaml",
        "queued: confg/queued.yaml: does not exist in …; run this where it is, or name its place by --config",
        CONFIG,
    ),
    Mistake(
        "--config names a folder that is not there",
        "pillarbox queue list --config /nowhere/config",
        "pillarbox: /nowhere/config/smtpd.yaml: does not exist; name its place by --config",
        CONFIG,
    ),
    Mistake(
        "command in another folder",
        "pillarbox queue list",
        "pillarbox: config/smtpd.yaml: does not exist in …; run this where it is, or name its place by --config",
        CONFIG,
        {"config/smtpd.yaml": None},
    ),
    Mistake(
        "var is a file",
        "pillarbox database start --var config/smtpd.yaml",
        "pillarbox: environment.var: config/smtpd.yaml is a file; allowed: a folder for run-time files",
        CONFIG,
    ),
    Mistake(
        "var is open to everybody",
        "pillarbox database start --var open",
        "pillarbox: environment.var: open has mode 0777, so every account may replace its files; allowed: a folder that others may not write (chmod o-w open)",
        CONFIG,
    ),
    Mistake(
        "var is open to everybody, in smtpd.yaml",
        "smtpd",
        "smtpd: config/smtpd.yaml: environment.var: open has mode 0777, so every account may replace its files; allowed: a folder that others may not write (chmod o-w open)",
        CONFIG,
        {"config/smtpd.yaml": "environment: {var: open}"},
    ),
    Mistake(
        "rule for an unknown transport, checked",
        "pillarbox policy check",
        'pillarbox: config/smtpd.yaml: policy.rules[0].then.transport: "slwo" is not a transport of config/queued.yaml; allowed: default, slow',
        CONFIG,
        {"config/smtpd.yaml": "ENVIRONMENT\npolicy: {rules: [{id: a, then: {transport: slwo}}]}"},
    ),
    Mistake(
        "no transport default",
        "pillarbox up",
        "pillarbox: config/queued.yaml: transports: no transport default, which mail takes that no rule routes; allowed: default beside relay",
        CONFIG,
        {"config/queued.yaml": f"ENVIRONMENT\n{_ALL}\ntransports: [{{id: relay}}]"},
    ),
    Mistake(
        "rule for an unknown transport, started",
        "pillarbox up",
        'pillarbox: config/smtpd.yaml: policy.rules[0].then.transport: "slwo" is not a transport of config/queued.yaml; allowed: default, slow',
        CONFIG,
        {"config/smtpd.yaml": "ENVIRONMENT\npolicy: {rules: [{id: a, then: {transport: slwo}}]}"},
    ),
]

WRITTEN: Final = [
    smtpd(
        "typo in a key",
        "servers: [{listners: [{port: 25}]}]",
        "config/smtpd.yaml:2: servers[0].listners: unknown key (value a list); allowed: …; did you mean listeners?",
    ),
    smtpd(
        "port that is not a number",
        "servers: [{listeners: [{port: smtp}]}]",
        'config/smtpd.yaml:2: servers[0].listeners[0].port: "smtp" is not a usable number; allowed: a whole number from 0 to 65535',
    ),
    smtpd(
        "port of somebody else",
        "servers: [{listeners: [{port: TAKEN}]}]",
        "servers[0].listeners[0]: 127.0.0.1:TAKEN: cannot listen: Address already in use by pid …",
        UNAVAILABLE,
    ),
    of_one_file(
        "HTTP on a port without a host",
        "httpd",
        "listen: 8025",
        f"config/httpd.yaml:2: listen: 8025 is not a place to listen; allowed: {_PLACE}",
    ),
    of_one_file(
        "HTTP on a port that is too large",
        "httpd",
        "listen: 127.0.0.1:80250",
        f'config/httpd.yaml:2: listen: "127.0.0.1:80250" is not a place to listen; allowed: {_PLACE}',
    ),
    of_one_file(
        "typo in a key of httpd",
        "httpd",
        "lisen: 127.0.0.1:0",
        'config/httpd.yaml:2: lisen: unknown key (value "127.0.0.1:0"); allowed: …; did you mean listen?',
    ),
    of_one_file(
        "interval in words",
        "collect",
        "poll: five",
        f'config/collect.yaml:2: poll: "five" is not a duration; allowed: {_IN_FILES}',
    ),
    of_one_file(
        "days in words",
        "collect",
        "keep: 30 days",
        f'config/collect.yaml:2: keep: "30 days" is not a duration; allowed: {_IN_FILES}',
    ),
    of_one_file(
        "form that is not known",
        "collect",
        "form: bond",
        'config/collect.yaml:2: form: "bond" is not usable here; allowed: bound or mailroom',
    ),
    of_one_file(
        "neither on nor off",
        "collect",
        "enabled: maybe",
        'config/collect.yaml:2: enabled: "maybe" is neither true nor false; allowed: true or false',
    ),
    of_one_file(
        "typo in a key of collect",
        "collect",
        "mail: {langauge: en}",
        'config/collect.yaml:2: mail.langauge: unknown key (value "en"); allowed: …; did you mean language?',
    ),
    smtpd(
        "no processes",
        "processes: 0",
        "config/smtpd.yaml:2: processes: 0 is not a usable number; allowed: a whole number from 1 to 64",
    ),
    smtpd(
        "unit that is not ours",
        "load: {lag: 1sec}",
        f'config/smtpd.yaml:2: load.lag: "1sec" is not a duration; allowed: {_IN_FILES}',
    ),
    smtpd(
        "percent for a fraction",
        "load: {stress: 80%}",
        'config/smtpd.yaml:2: load.stress: "80%" is not a fraction; allowed: a number from 0 to 1',
    ),
    queued(
        "port of an endpoint that is not a number",
        f"{_ALL}\nwebhooks: {{endpoints: [{{id: app, url: 'https://app.example:x/', events: [failed], secrets: ['env:S']}}]}}",
        'config/queued.yaml:3: webhooks.endpoints[0].url: "https://app.example:x/" is not usable here; allowed: http:// or https://, a host and a path, without user, password and #',
    ),
    queued(
        "no intervals",
        f"{_ALL}\ntransports: [{{id: default, retry: {{intervals: []}}}}]",
        "config/queued.yaml:3: transports[0].retry.intervals: the list is empty; allowed: at least one entry, or to leave the key out",
    ),
    queued(
        "intervals in one text",
        f"{_ALL}\ntransports: [{{id: default, retry: {{intervals: 1m 15m}}}}]",
        'config/queued.yaml:3: transports[0].retry.intervals: "1m 15m" is not a list; allowed: entries that begin with a hyphen, or [a, b]',
    ),
    queued(
        "port in quotes",
        f"{_ALL}\ntransports: [{{id: default, connection: {{port: '25'}}}}]",
        'config/queued.yaml:3: transports[0].connection.port: "25" is not a usable number; allowed: a whole number from 1 to 65535',
    ),
    smtpd(
        "bad network",
        "relay: {networks: [10.0.0.1/8]}",
        'config/smtpd.yaml:2: relay.networks[0]: "10.0.0.1/8" is not a network, its address has bits beyond the prefix; allowed: an IPv4 or IPv6 network such as 192.0.2.0/24',
    ),
    smtpd(
        "bad regular expression",
        "policy: {rules: [{id: a, if: {helo: ['/(/']}, then: {reject: 550 5.7.1 No}}]}",
        'config/smtpd.yaml:2: policy.rules[0].if.helo[0]: "/(/" is not a regular expression (missing ): (); allowed: RE2 syntax between slashes',
    ),
    smtpd(
        "duration in words",
        "spool: {timeout: soon}",
        'config/smtpd.yaml:2: spool.timeout: "soon" is not a duration; allowed: whole numbers with d, h, m, s or ms in that order (1h30m), or whole seconds, at most 36500d',
    ),
    smtpd(
        "account that does not exist",
        "user: nosuchaccount",
        "config/smtpd.yaml: user: account nosuchaccount does not exist; allowed: the name of an account",
    ),
    smtpd(
        "variable that is not set",
        'user: !Env "${NOT_SET_ANYWHERE}"',
        "config/smtpd.yaml:2:7: the environment variable NOT_SET_ANYWHERE is not set and has no default",
    ),
    _tls(
        "certificate that is missing",
        "nowhere.pem",
        "good.key",
        "servers[0].tls.certificate: nowhere.pem: No such file or directory; allowed: a file in PEM that smtpd may read",
    ),
    _tls(
        "key that is missing",
        "good.pem",
        "nowhere.key",
        "servers[0].tls.privatekey: nowhere.key: No such file or directory; allowed: a file in PEM that smtpd may read",
    ),
    _tls(
        "folder for a key",
        "good.pem",
        "config",
        "servers[0].tls.privatekey: config: Is a directory; allowed: a file in PEM that smtpd may read",
    ),
    _tls(
        "key of another certificate",
        "good.pem",
        "ended.key",
        "servers[0].tls: good.pem, ended.key: the private key is not the certificate's",
    ),
    _tls(
        "expired certificate",
        "ended.pem",
        "ended.key",
        "servers[0].tls.certificate: ended.pem expired ENDED; allowed: a certificate that is valid now",
    ),
    queued(
        "key of metadata that does not exist",
        """workers: [{id: all, where: "metadata->>'_partit' IN ('1')"}]""",
        """config/queued.yaml:2: workers[0].where: "metadata->>'_partit' IN ('1')": metadata has no key _partit; allowed: …; did you mean _partid?""",
    ),
    queued(
        "-> in place of ->>",
        """workers: [{id: all, where: "metadata->'_partid' IN ('1')"}]""",
        """config/queued.yaml:2: workers[0].where: "metadata->'_partid' IN ('1')": metadata->'_partid' is JSON and compared with text; allowed: metadata->>'_partid'""",
    ),
    queued(
        "column that does not exist",
        """workers: [{id: all, where: "partid = '1'"}]""",
        """config/queued.yaml: workers[0].where: "partid = '1'": column "partid" does not exist; allowed: one SQL condition on the columns of queue""",
    ),
    queued(
        "parenthesis left out",
        """workers: [{id: all, where: "priority IN (1"}]""",
        """config/queued.yaml: workers[0].where: "priority IN (1" is not one SQL condition: its parentheses do not balance""",
    ),
    queued(
        "port within the host",
        f"{_ALL}\ntransports: [{{id: default, connection: {{server: 'smtp.example.com:587'}}}}]",
        'config/queued.yaml:3: transports[0].connection.server: "smtp.example.com:587" is not a host; allowed: a host name, IPv4 or IPv6 address',
    ),
    queued(
        "secret that is missing",
        f"{_ALL}\ntransports: [{{id: default, connection: {{server: smtp.example.com, auth: {{user: me, password: {{file: nowhere}}}}}}}}]",
        "config/queued.yaml: transports[default].connection.auth: nowhere cannot be read: No such file or directory",
    ),
    queued(
        "group that does not exist",
        f"{_ALL}\ntransports: [{{id: default, group: big}}]",
        'config/queued.yaml:3: transports[0].group: group "big" does not exist; allowed: none, for transportgroups is empty',
    ),
    queued(
        "rule for a transport that does not exist",
        f"{_ALL}\nrules: [{{id: a, if: {{transport: [slwo]}}, defer: 1h}}]",
        'config/queued.yaml:3: rules[0].if.transport[0]: "slwo" is not a transport; allowed: default',
    ),
    queued(
        "limit for a transport that does not exist",
        f"{_ALL}\npacing: {{policies: [{{id: a, rate: 1/sec, match: {{transport: [slwo]}}}}]}}",
        'config/queued.yaml:3: pacing.policies[0].match.transport[0]: "slwo" is not a transport; allowed: default',
    ),
    queued(
        "notifications by a transport that does not exist",
        f"{_ALL}\nbounces: {{transport: slwo}}",
        'config/queued.yaml:3: bounces.transport: "slwo" is not a transport; allowed: default',
    ),
    queued(
        "rate in words",
        f"{_ALL}\npacing: {{policies: [{{id: a, rate: fast}}]}}",
        'config/queued.yaml:3: pacing.policies[0].rate: "fast" is not a rate; allowed: N/sec, N/min, N/hour or N/day',
    ),
    yaml(
        "indented too deep",
        "environment:\n  var: x\n   log: {level: info}\n",
        "3:4: not valid YAML: indented by 3, but line 2 above has a value already; allowed: 2, as there",
    ),
    yaml(
        "indented too little",
        "environment:\n  var: x\n log: {level: info}\n",
        "3:2: not valid YAML: indented by 1, but its neighbours, from line 1 on, by 0; allowed: the same for all",
    ),
    yaml("indented by a tab", "environment:\n\tvar: x\n", "2:1: not valid YAML: a tab; allowed: spaces"),
    yaml(
        "open quote",
        'environment:\n  var: "x\n  log:\n    level: info\n',
        "2:8: not valid YAML: the quote that opens here is not closed",
    ),
    yaml(
        "open quote before another",
        'environment:\n  var: "x\n  log:\n    level: "info"\n',
        "2:8: not valid YAML: the quote that opens here is closed on line 4 only; is a quote missing before that?",
    ),
    yaml(
        "domains by a star",
        "servers: [*.example.com]\n",
        "1:11: not valid YAML: an alias begins with *; put text that begins with * in quotes",
    ),
    yaml(
        "addresses by a star",
        "servers:\n- *@example.com\n",
        "2:3: not valid YAML: an alias begins with *; put text that begins with * in quotes",
    ),
    yaml(
        "word after an ampersand",
        "servers: [&.x]\n",
        "1:11: not valid YAML: an anchor begins with &; put text that begins with & in quotes",
    ),
    yaml(
        "apostrophe within quotes",
        "user: 'it's'\n",
        "1:11: not valid YAML: text after the quote that ends before it; a quote within single quotes is written twice",
    ),
    yaml("bracket too many", "servers: [a]]\n", "1:13: not valid YAML: a ] without a [ before it"),
    yaml(
        "open bracket",
        "servers:\n- listeners: [{port: 25}\n  hostname: x\n",
        "2:14: not valid YAML: the [ that opens here is not closed before line 3",
    ),
    yaml(
        "two colons",
        "environment: var: x\n",
        "1:17: not valid YAML: a second colon in one line; put text that holds a colon in quotes",
    ),
    yaml(
        "key without a colon",
        "environment:\n  var\n  log: {level: info}\n",
        "2:3: not valid YAML: no colon after this key; allowed: key: value",
    ),
    yaml("key twice", "user: a\nuser: b\n", '2:1: duplicate key "user", first written on line 1'),
    yaml("empty file", "# nothing\n", " is empty; allowed: a mapping of keys (see the shipped config/)"),
]

OF_THE_DATABASE: Final = [
    database(
        "no server",
        "postgresql://127.0.0.1:1/none",
        'smtpd: PostgreSQL is unavailable: connection failed: connection to server at "127.0.0.1", port 1 failed: Connection refused…',
    ),
    database(
        "unknown scheme",
        "mysql://localhost/none",
        'smtpd: config/smtpd.yaml: environment.database.uri: missing "=" after "mysql://localhost/none" in connection info string; allowed: `embedded:` or a libpq URI to PostgreSQL 15 or newer',
        CONFIG,
    ),
    database(
        "unknown database",
        "NODATABASE",
        'pillarbox: PostgreSQL is unavailable: connection failed: … FATAL: database "nosuch" does not exist',
        typed="pillarbox queue list",
    ),
    database(
        "role that may not log in",
        "NOLOGIN",
        'smtpd: PostgreSQL is unavailable: connection failed: … FATAL: role "STRANGER" is not permitted to log in',
    ),
    database(
        "role that may not log in, of a worker",
        "NOLOGIN",
        'queued: PostgreSQL is unavailable: connection failed: … FATAL: role "STRANGER" is not permitted to log in',
        typed="queued --worker all",
    ),
    database(
        "role without rights",
        "NORIGHTS",
        f'smtpd: permission denied for schema pillarbox, as role "GUEST" in database "DATABASE"; {_GRANT}',
    ),
    database(
        "role without rights, of a worker",
        "NORIGHTS",
        f'queued: permission denied for schema pillarbox, as role "GUEST" in database "DATABASE"; {_GRANT}',
        typed="queued --worker all",
    ),
    database(
        "role without rights, migrating",
        "NORIGHTS",
        f'pillarbox: permission denied for schema pillarbox, as role "GUEST" in database "DATABASE"; {_GRANT}',
        typed="pillarbox migrate",
    ),
    database(
        "role without rights, looking",
        "NORIGHTS",
        "pillarbox: permission denied for schema pillarbox; see docs/how-to/rights/grant-roles.md",
        FAILED,
        typed="pillarbox queue list",
    ),
    database(
        "role of another daemon",
        "QUEUED",
        f'smtpd: no right to INSERT into pillarbox.messages and .queue, as role "WORKER" in database "DATABASE"; {_GRANT}',
    ),
    database(
        "role of another daemon, of a worker",
        "SMTPD",
        "queued: permission denied for table queue; see docs/how-to/rights/grant-roles.md",
        typed="queued --worker all",
    ),
    database(
        "no migrations yet",
        "EMPTY",
        "smtpd: the schema is older than this code: 0001_pre_schema missing; run `pillarbox migrate`",
        CONFIG,
    ),
    database(
        "no migrations yet, looking",
        "EMPTY",
        'pillarbox: relation "pillarbox.queue_state" does not exist; run `pillarbox migrate`',
        CONFIG,
        typed="pillarbox queue list",
    ),
    database(
        "no migrations yet, looking at the whole",
        "EMPTY",
        "pillarbox: the schema is older than this code: 0001_pre_schema missing; run `pillarbox migrate`",
        CONFIG,
        typed="pillarbox status",
    ),
]

#: What an application writes in SQL, and the first line of PostgreSQL's answer.
OF_APPLICATIONS: Final = {
    "SELECT pillarbox.enqueue('a@example.com', ARRAY['b@example.com'], 'x', priority => 77)": "priority 77 is out of range; allowed: -9 to 9",
    "SELECT pillarbox.enqueue('a@example.com', ARRAY['b@example.com'], 'x', priority => 77777)": "priority 77777 is out of range; allowed: -9 to 9",
    "SELECT pillarbox.enqueue('a@example.com', ARRAY['b@example.com'], 'x', transportid => 'slwo')": 'transportid "slwo" is not a transport of any worker; allowed: default, slow',
    """SELECT * FROM pillarbox.enqueue_batch('[{"sender": "a@example.com", "recipients": ["b@example.com"], "content": "x", "priority": -10}]')""": "element 1: priority -10 is out of range; allowed: -9 to 9",
    """SELECT * FROM pillarbox.enqueue_batch('[{"sender": "a@example.com", "recipient": "b@example.com"}]')""": "element 1: enqueue has no parameter 'recipient'",
    "UPDATE pillarbox.mail SET priority = 10": "priority 10 is out of range; allowed: -9 to 9",
    "UPDATE pillarbox.mail SET state = 'SENT'": "state can be set to HOLD, DELIVER, DELETE or BOUNCE, not SENT",
    "SELECT pillarbox.enqueue('example.com', ARRAY['b@example.com'], 'x')": 'not an address: "example.com"',
}
