"""test_reload_fixes_a_refused_login — mail waits while the relay refuses our login, and leaves once it is corrected

See: docs/how-to/deliver/log-in-to-a-relay.md; queued/smtp/auth.py; operate/doctor/logins.py.
"""

from __future__ import annotations

import json
import signal
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from operate.doctor.checks import Severity
from operate.doctor.logins import refused
from shared.postgres import database
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.relay import Relay
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System
    from tests.fixtures.peers.certificates import Authority

WRONG, RIGHT = "expired-password", "renewed-password"


@pytest.mark.parametrize("with_login", [True, False])
async def test_mail_waits_and_leaves_after_the_reload(
    *, system: System, books: Books, authority: Authority, with_login: bool
) -> None:
    """Without a login the relay replies 530 to MAIL, our own fault too. Tries and age are used up meanwhile."""
    secret = authority.folder / "relay.password"
    secret.write_text(f"{WRONG if with_login else RIGHT}\n")
    secret.chmod(0o600)
    smtpd = await system.smtpd()
    began = monotonic()
    async with Relay(authority, RIGHT) as relay:
        auth = {"user": "apikey", "password": {"file": str(secret)}}
        worker = await system.worker(
            relay.port,
            transport={
                "connection": {"auth": auth} if with_login else {},
                "tls": {"implicit": True, "ca": str(authority.file)},
                # Far below the number of messages, so that each additional connection would be visible.
                "feedback": {"initial": 2, "dead": "1s", "longest": "2s"},
                "retry": {"intervals": ["1s"], "count": 0, "age": "2s"},
            },
        )
        await books.submit(smtpd, numbered(30))
        said = "535 5.7.8 wrong password" if with_login else "530 5.7.0 log in first"
        await system.until("SELECT count(*) = 30 FROM queue WHERE strpos(last_error, %s) > 0", said)
        await system.until("SELECT count(*) > 0 FROM queue WHERE strpos(last_error, 'is left alone: ') > 0")
        tried = len(relay.logins)
        # One connection a second after the first, and not thirty at once.
        assert tried <= 6 + monotonic() - began if with_login else tried == 0
        # Everything is older than it may become, and was looked at since.
        await system.until(
            "SELECT count(*) = 30 FROM queue WHERE greatest(next_retry, lease_until) > ts + interval '8 s'"
        )
        # retry.count is 0: each try would have given its mail up.
        assert await system.value("SELECT count(*) FROM attempts") > 0
        assert relay.mails == []
        assert await system.value("SELECT count(*) FROM archive") == 0
        assert await system.value("SELECT count(*) FROM notices") == 0
        assert await system.value("SELECT count(*) FROM attempts WHERE outcome = 'failed'") == 0
        scopes = await system.rows("SELECT DISTINCT scope, reply_code FROM attempts")
        assert scopes == ([("destination", 535)] if with_login else [("us", 530)])
        async with await database.connect(system.uri, "doctor") as connection:
            [finding] = refused(await database.fetch(connection, "doctor_logins", batch=1000))
        assert finding.verdict is Severity.ALARM
        assert said in finding.found
        if with_login:
            assert {each["transport"] for each in worker.said("auth.refused")} == {"default"}
            secret.write_text(f"{RIGHT}\n")
        else:
            written = system.folder / f"{worker.name}.yaml"
            settings = json.loads(written.read_text())
            settings["transports"][0]["connection"]["auth"] = auth
            written.write_text(json.dumps(settings))
        worker.signal(signal.SIGHUP)
        await worker.until_said("daemon.reloaded")
        await eventually(lambda: len(relay.mails) == 30, "all mail leaves once the login is corrected")
        await system.until("SELECT count(*) = 0 FROM queue")
        assert await system.value("SELECT count(*) FROM archive WHERE result = 'success'") == 30
        assert set(relay.mails) == {"apikey"}
    for word in (WRONG, RIGHT):
        assert word not in worker.log
        query = "SELECT count(*) FROM attempts WHERE strpos(attempts::text, %s) > 0"
        assert await system.value(query, word) == 0


async def test_a_worker_that_has_just_begun_gives_up_no_mail_that_only_our_login_stopped(
    system: System, books: Books, authority: Authority
) -> None:
    """It has not met the refusal itself: the relay is away when it begins, and all mail is past its age."""
    secret = authority.folder / "relay.password"
    secret.write_text(f"{WRONG}\n")
    secret.chmod(0o600)
    transport = {
        "connection": {"auth": {"user": "apikey", "password": {"file": str(secret)}}},
        "tls": {"implicit": True, "ca": str(authority.file)},
        "feedback": {"initial": 2, "dead": "1s", "longest": "2s"},
        "retry": {"intervals": ["1s"], "count": 0, "age": "2s"},
    }
    claim = {"lease": "6s"}  # of workers that are killed: what they have claimed by then is due again after it
    smtpd = await system.smtpd()
    async with Relay(authority, RIGHT) as relay:
        worker = await system.worker(relay.port, "refused", claim=claim, transport=transport)
        await books.submit(smtpd, numbered(10))
        await system.until("SELECT count(*) = 10 FROM queue WHERE last_error LIKE '%cannot log in: %'")
        await worker.kill()
    worker = await system.worker(free_port(), "heir", claim=claim, transport=transport)
    # Each is past its age, and is tried or parked by a worker that knows of no refused login.
    await system.until(
        "SELECT count(*) = 10 FROM queue"
        " WHERE last_error LIKE '%(our login was refused before)' AND next_retry > ts + interval '4 s'"
    )
    assert await system.value("SELECT count(*) FROM archive") == 0
    await worker.kill()
    secret.write_text(f"{RIGHT}\n")
    async with Relay(authority, RIGHT) as relay:
        await system.worker(relay.port, "last", transport=transport)
        await system.until("SELECT count(*) = 10 FROM archive WHERE result = 'success'")
