"""events_table — the names of events

Owns: every event with its level, its meaning and its fields.
Guarantees: constants. The names feed logs, metrics and analytics, so renaming one breaks users.
See: docs/reference/events.md, generated from EVENTS.
"""

import logging
from typing import Final

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

#: name → (level, what it means; its fields)
EVENTS: Final[dict[str, tuple[int, str]]] = {
    "daemon.started": (INFO, "A daemon is ready; `role`, `pid`, what it serves, and where its metrics are."),
    "daemon.stopping": (INFO, "A signal asked a daemon to stop; `signal`."),
    "daemon.waiting": (INFO, "Stopping waits; `step`, `on` names what it waits for."),
    "daemon.stopped": (INFO, "A daemon has stopped; `seconds` since it was asked to, `left` what it had to leave."),
    "daemon.failed": (ERROR, "A part of a daemon died, so the daemon stops; `part`, `error`."),
    "daemon.privileged": (WARNING, "A daemon runs as root; `hint` says how not to."),
    "daemon.reloaded": (INFO, "A daemon uses its changed configuration; open sessions keep the old one."),
    "daemon.reload_ignored": (WARNING, "Changes that need a restart; `keys`."),
    "daemon.reload_refused": (ERROR, "The configuration cannot be used, so the old one stays; `error`."),
    "database.lost": (
        ERROR,
        (
            "PostgreSQL does not answer; logged once for each outage; `noticed` is the first event of it, `error`. "
            "Further ones are logged at debug until database.back."
        ),
    ),
    "database.back": (INFO, "PostgreSQL answers again; `seconds` since database.lost, `failures` meanwhile."),
    "load.shedding": (WARNING, "New clients get 421 from now on; `reason`, `sessions`, `lag` in seconds."),
    "load.restored": (INFO, "New clients are served again; `refused` got 421, in `seconds`."),
    "load.refused": (DEBUG, "A new client got 421 in place of a greeting; `reason`."),
    "oidc.unreachable": (
        WARNING,
        "The provider of tokens did not give its keys: known keys are used for a day, and without any tokens get 503; `issuer`, `error`.",  # noqa: E501
    ),
    "rates.apart": (
        INFO,
        (
            "No smtpd counts for httpd at this socket: limits of `rates` hold for mail by HTTP alone until one does; "
            "`socket`, `error`."
        ),
    ),
    "rates.exceeded": (
        DEBUG,
        "A client exceeded a limit of `rates`; `client`, `limit`, `seconds` until it is accepted again.",
    ),
    "rates.shared": (INFO, "smtpd counts for httpd: limits of `rates` hold for SMTP and HTTP together; `socket`."),
    "rates.socket_failed": (
        WARNING,
        "The socket at which smtpd counts for httpd cannot be used; `socket`, `error`.",
    ),
    "rates.unanswered": (
        WARNING,
        (
            "The counting process did not answer in time: this one uses its share of the limits; logged once a minute; "
            "`ask`, `error`."
        ),
    ),
    "request.answered": (
        DEBUG,
        "A request over HTTP was answered; `id`, `client`, `method`, `path`, `status`, `seconds`, `principal`, `key`.",
    ),
    "request.failed": (ERROR, "Our own fault in a request over HTTP, which got 500; `id`, `error`."),
    "request.unavailable": (
        WARNING,
        "A request over HTTP got 503, because PostgreSQL did not do its part; `id`, `error`.",
    ),
    "key.refused": (INFO, "A request over HTTP showed no valid API key; `client`, `key` if it is known, `reason`."),
    "console.signed_in": (INFO, "A person signed in to the console; `client`, `principal`."),
    "console.refused": (INFO, "A sign-in to the console failed; `client`, `name` as typed, or as the provider has it."),
    "session.opened": (DEBUG, "A client connected; `client`."),
    "session.closed": (DEBUG, "A client's connection ended; `client`."),
    "session.error": (
        ERROR,
        "Our own fault while serving a client, who got 451; `client`, `id` to search for, `error`.",
    ),
    "session.replied": (DEBUG, "A reply was given; `client`, `reply`."),
    "session.refused": (INFO, "A command was refused; `client`, `reply`, and the address concerned."),
    "authenticate.succeeded": (INFO, "A client logged in; `client`, `user`, `mechanism`."),
    "authenticate.refused": (
        INFO,
        "A login failed; `client`, `user` as claimed, `mechanism`, `reason`, `seconds` its reply waits.",
    ),
    "authenticate.banned": (
        WARNING,
        "One failure too many: logins of `client`, and of `user` from its network, are refused for a while.",
    ),
    "authenticate.busy": (WARNING, "Too many passwords wait to be hashed: a login got 454; `client`."),
    "tls.failed": (INFO, "A TLS handshake failed, so the connection ended; `client`, `error`."),
    "tls.expires": (
        WARNING,
        "A certificate ends soon, has ended or has not begun; `certificate`, `names`, `days`, `begins`.",
    ),
    "tls.abandoned": (
        INFO,
        "A TLS handshake with a next hop failed, so mail goes in clear text, as tls.mode allows; `remote`, `error`.",
    ),
    "auth.refused": (
        WARNING,
        "We cannot log in to a next hop, or it requires a login; `transport`, `remote`, `user`, `mechanism`, `error`.",
    ),
    "mta_sts.fetched": (INFO, "A domain's MTA-STS policy was read; `domain`, `mode`, `id`, `max_age` in seconds."),
    "mta_sts.failed": (
        WARNING,
        "The MTA-STS policy of a domain could not be fetched; an older one applies, or none; `domain`, `error`.",
    ),
    "users.read": (INFO, "The file of users has changed and was read; `file`, `users`."),
    "users.refused": (ERROR, "The file of users has changed and cannot be used, the old stays; `file`, `error`."),
    "users.unavailable": (ERROR, "The table of users could not be read: a login got 454; `error`."),
    "policy.list_read": (INFO, "A list's file changed and was read; `list`, `file`, `entries`."),
    "policy.list_unreadable": (
        ERROR,
        "A list's file changed and cannot be read: the old entries stay; `list`, `file`, `error`.",
    ),
    "policy.list_unavailable": (
        ERROR,
        "A list's query could not be answered: the client got 451; `client`, `error`.",
    ),
    "content.checked": (INFO, "rspamd checked a message; `client`, `action`, `score`, `seconds`."),
    "content.skipped": (INFO, "A message is too large to be checked; `client`, `size`."),
    "content.unavailable": (
        ERROR,
        "rspamd gave no verdict: policy.contentcheck.whendown applies; `client`, `error`, `seconds`.",
    ),
    "collect.batch": (DEBUG, "A batch of account tokens is collected: its COMMIT was answered; `tokens`, `seconds`."),
    "collect.queued": (INFO, "Mail for a batch of account tokens is in the queue, once COMMIT is answered; `tokens`."),
    "collect.printed": (INFO, "A batch of account tokens was written to standard output; `tokens`."),
    "collect.known": (INFO, "The mail for a token had been queued before, with other contents; `token`."),
    "collect.refused": (
        ERROR,
        "The mail for a token cannot be made or queued, and is not tried again; `token`, `error`.",
    ),
    "collect.unavailable": (ERROR, "Tokens could not be collected; tried again in `seconds`; `error`."),
    "collect.unforgotten": (WARNING, "Old tokens could not be deleted; tried again in an hour; `error`."),
    "collect.forgot": (INFO, "Tokens that expired long ago were deleted; `tokens`."),
    "spool.committed": (
        INFO,
        "A message is safe; `id`, `sender`, `recipients`, `size`, `client`, `held`, `priority`, `due`.",
    ),
    "spool.reply_lost": (WARNING, "Committed, but the client hung up before 250: it may submit again; `id`, `client`."),
    "spool.abandoned": (INFO, "The client hung up before COMMIT: nothing is kept; `id`."),
    "spool.refused": (WARNING, "PostgreSQL refused one message, the others of its group went on; `id`, `error`."),
    "spool.unavailable": (ERROR, "A group could not be committed: its clients got 451; `messages`, `error`."),
    "spool.not_durable": (
        ERROR,
        (
            "PostgreSQL gave up waiting for a standby: clients got 451 for mail that one server has, and each that "
            "submits again causes a duplicate; `messages`, `recipients`, `error`."
        ),
    ),
    "spool.space_low": (
        ERROR,
        "PostgreSQL's volumes have little room left: clients get 452, delivery goes on; `volume`, `free`, `least`.",
    ),
    "spool.space_restored": (INFO, "There is room again, and mail is accepted; `volume`, `free` octets."),
    "spool.space_unknown": (
        WARNING,
        "smtpd cannot read the free space of PostgreSQL's volumes and accepts or refuses as before; `error`.",
    ),
    "spool.recovered": (DEBUG, "PostgreSQL takes mail again, after spool.unavailable."),
    "spool.lost_after_failover": (
        ERROR,
        "PostgreSQL came back without `messages` that got 250; `before`, `history`, and `ids`, a hundred a line.",
    ),
    "spool.unproven": (
        WARNING,
        "It could not be checked whether the last `messages` accepted messages are all there; `error`.",
    ),
    "spool.group": (DEBUG, "A group was committed; `messages`, `recipients`, `bytes`, `seconds`."),
    "claim.taken": (DEBUG, "Recipients were claimed; `recipients`, `token`."),
    "claim.expired": (
        WARNING,
        "A claim was taken over whose lease or process has ended: mail may arrive twice; `recipient_id`, `token`.",
    ),
    "claim.lost": (
        WARNING,
        "A result came too late, another claim holds the row: a possible duplicate; `recipient_id`, `outcome`.",
    ),
    "claim.timeline_changed": (
        WARNING,
        "Another timeline answers (a promoted standby, a backup); `before`, `timeline`, `results` that wait.",
    ),
    "claim.leaf_in_part": (
        WARNING,
        "A worker's WHERE does not match whole leaves; `worker`, `source` (file and key), `leaves`, `remedy`.",
    ),
    "claim.ended": (WARNING, "A lease ended in the middle of an attempt, which was cut off; `id`, `recipients`."),
    "claim.parked": (
        DEBUG,
        "Recipients went back untried, to come again later; `recipients`, and of the first `reason` and `seconds`.",
    ),
    "claim.no_successor": (
        INFO,
        "A name cannot be kept in `environment.var`: if this process is killed, its mail waits for a lease; `error`.",
    ),
    "claim.released": (INFO, "Claimed recipients were given back untried; `recipients`."),
    "claim.failed": (ERROR, "A claim could not be made; it is tried again; `error`, `seconds` until then."),
    "result.delivered": (
        INFO,
        "A recipient was delivered; `id`, `to`, `transport`, `remote`, `reply`, `tries`, `seconds`, `delay` in all.",
    ),
    "result.deferred": (INFO, "A recipient is tried again later; as delivered, with `next_retry`."),
    "result.failed": (WARNING, "A recipient is given up; as delivered, with `result`."),
    "result.group": (DEBUG, "Results were recorded in one go; `results`, `seconds`."),
    "result.held": (
        WARNING,
        "A rule put a recipient on hold instead of trying again; as delivered, with `quarantine` and `reason`.",
    ),
    "result.unrecorded": (
        ERROR,
        "Results could not be recorded; they are tried again; `results`, `error`, `seconds` until then.",
    ),
    "result.refused": (
        ERROR,
        "PostgreSQL refused one result; `recipient_id`, `error`, `then`: recorded with less, or kept with its claim.",
    ),
    "notice.sent": (
        INFO,
        "A sender was notified of recipients; `id` of the notification, `kind`, `about`, `to`, `recipients`, `copy`.",
    ),
    "notice.held_back": (
        WARNING,
        "A rate of notifications is used up; `sender` (absent for the rate of all), `notices` that wait, `until`.",
    ),
    "notice.refused": (
        ERROR,
        "A notification could not be queued and waits for an hour; `id` of the message, `notices`, `error`.",
    ),
    "notice.failed": (WARNING, "Notices could not be read; they are tried again soon; `error`."),
    "warmup.used_up": (
        INFO,
        "A source address has sent its allowance for a day of its warm-up; `source`, `day`, `messages` of all workers.",
    ),
    "warmup.unanswered": (
        ERROR,
        "PostgreSQL could not say what a source under warm-up may still send, so it waits; `source`, `error`.",
    ),
    "attempt.stuck": (
        ERROR,
        "An attempt got nowhere within its time limits and was cut off; `id`, `recipients`, `phase`, `seconds`.",
    ),
    "suppression.added": (
        INFO,
        "An address gets no more mail; `address`, `source` (bounce, arf), `reason`, `count` of reports.",
    ),
    "suppression.noted": (
        INFO,
        "An address failed, but not yet often enough to suppress it; `address`, `reason`, `count`.",
    ),
    "suppression.read": (INFO, "A message to an address for reports was read; `id`, `to`, `said` with the outcome."),
    "suppression.unavailable": (WARNING, "The suppression list could not be read, so mail is sent; `error`."),
    "failover.passed": (INFO, "A host did not take part in an attempt, so the next one is asked; `remote`, `reason`."),
    "rules.fired": (
        INFO,
        "Rules decided about a reply; `rules`, `outcome` that follows, `transport`, `destination`, `reply`.",
    ),
    "rules.failed": (
        ERROR,
        "The rules failed by a fault of ours, so the outcome is as without them; `error`, `reply`.",
    ),
    "body.missing": (ERROR, "A claimed recipient has no body; it is put on hold; `id`, `recipient_id`."),
    "sign.loaded": (INFO, "A key for signatures was read; `rule`, `selector`, `algorithm`."),
    "sign.failed": (
        ERROR,
        "A message could not be signed by a fault of ours, so it waits or leaves unsigned; `id`, `error`, `onerror`.",
    ),
    "sign.skipped": (
        WARNING,
        "A message leaves unsigned, because no signature would verify; `id`, `domain`, `reason`.",
    ),
    "wakeup.listening": (DEBUG, "Listening for notifications."),
    "wakeup.heard": (DEBUG, "Notifications that concern this worker were heard; `partitions`, how many."),
    "wakeup.unsent": (
        WARNING,
        "Notifications could not be sent: their workers find the mail at their next poll; `hints`, how many, `error`.",
    ),
    "wakeup.lost": (WARNING, "The listening connection ended; polling goes on; `error`, `seconds` until the next try."),
    "wakeup.deaf": (
        WARNING,
        "The listening connection hears nothing any more, so it is opened again; `seconds` until then.",
    ),
    "wakeup.swallowed": (
        WARNING,
        "No notification gets through, so mail is found by polling. Logged once; `hint`, `seconds` until the next try.",
    ),
    "register.failed": (
        WARNING,
        "A daemon could not write to the register that it is alive, or stops; the next beat tries again; `error`.",
    ),
    "metrics.failed": (WARNING, "A page of metrics or health could not be made; `page`, `error`."),
    "tracing.failed": (WARNING, "The collector takes no spans; logged once a minute; `spans` are lost, `error`."),
    "maintain.poison": (WARNING, "Recipients that made their worker lose the claim too often are held; `recipients`."),
    "maintain.clock": (
        WARNING,
        "PostgreSQL's clock was put back by `seconds`; due times of `recipients` written before were put back too.",
    ),
    "maintain.renotified": (INFO, "Workers of partitions with overdue mail were woken; `partitions`."),
    "maintain.unserved": (
        WARNING,
        "No living worker serves some due mail; `partitions`, `recipients` at least, `seconds` it has been due.",
    ),
    "maintain.dropped": (INFO, "Days of history past keep-until were dropped; `partitions`."),
    "maintain.vacuumed": (DEBUG, "A leaf with many dead rows was vacuumed; `leaf`, `seconds`."),
    "maintain.swept": (DEBUG, "Bodies without recipients were collected; `messages`."),
    "maintain.finished": (INFO, "Mail that an operator deleted or bounced was finished; `deleted`, `bounced`."),
    "maintain.days": (INFO, "Coming days of history were made; `partitions`."),
    "maintain.failed": (
        WARNING,
        "A step of maintenance failed, or, without `step`, a whole round; the next round tries again; `step`, `error`.",
    ),
    "suspend.added": (INFO, "A rule suspended mail; `selection`, `reason`, `seconds`, `who`."),
    "suspend.lifted": (INFO, "Mail that waited for a removed suspend is due; `selection`, `recipients`."),
    "suspend.failed": (WARNING, "The table of suspends could not be read or written; it is tried again soon; `error`."),
    "pace.unshared": (
        WARNING,
        "PostgreSQL could not say how much a shared limit allows, so mail under the limit waits; `error`.",
    ),
    "schedule.sent": (
        INFO,
        "A recurring message was queued; `schedule`, `id`, `occurrence`, `seconds` it was late, `next`.",
    ),
    "schedule.disabled": (
        ERROR,
        "A schedule cannot be sent and is disabled until `pillarbox schedule enable`; `schedule`, `error`.",
    ),
    "schedule.failed": (WARNING, "Recurring mail could not be queued; it is tried again soon; `schedule`, `error`."),
    "webhook.sent": (DEBUG, "An endpoint took events; `webhook`, `events`, `seconds`."),
    "webhook.failed": (
        WARNING,
        "An endpoint did not take a request; `webhook`, `error`, `tries` in a row, `seconds` until the next.",
    ),
    "webhook.paused": (
        ERROR,
        "An endpoint failed for more than three days and gets nothing until somebody enables it; `webhook`, `reason`.",
    ),
    "webhook.disabled": (WARNING, "An endpoint answered that it is gone, and gets no more; `webhook`, `reason`."),
    "webhook.unavailable": (
        WARNING,
        "Events could not be read or sent; it is tried again soon; `webhook` if it is about one, `error`.",
    ),
    "child.started": (INFO, "The supervisor started a daemon, or the embedded PostgreSQL; `name`, `pid`, `seconds`."),
    "child.failed": (ERROR, "A daemon that was asked to stop ended with an error; `name`, `pid`, `status`."),
    "child.stuck": (
        ERROR,
        "A daemon sent no heartbeat for too long and is killed; `name`, `pid`, `seconds`.",
    ),
    "child.died": (
        WARNING,
        (
            "A daemon or the embedded PostgreSQL died, or did not start; `name`, `pid`, `status`, `error`, `seconds` "
            "until it is started again."
        ),
    ),
}
