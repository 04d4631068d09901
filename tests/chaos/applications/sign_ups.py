"""sign-ups — applications whose accounts are in the queue's database, and the collectors that queue their mail

Owns: SignUps, which inserts accounts until each is committed; the collectors' configuration; the promise to them: the
    token of each account is queued exactly once, as the mail that its templates make.
Guarantees: the mail of an account is computed from its token before COMMIT, by the collector's own composer.
See: sql/accounts/README.md, "Collecting".
"""

from __future__ import annotations

import asyncio
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import psycopg

from collect.message import Composer
from collect.templates import Templates
from collect.token import Signer, Token
from scripts.demo.sample_mail import Sample
from shared.config.collect.settings import AccountMail
from shared.postgres import account_schema
from tests.chaos.applications.application import BREATH, Application
from tests.fixtures.daemons.submit import DOMAINS

if TYPE_CHECKING:
    from tests.chaos.accounts import Accounts
    from tests.chaos.arena import Arena
    from tests.fixtures.daemons.system import Daemon, System

_SENDER: Final = "accounts@origin.example"
_KEY: Final = "cafebabe" * 8
_MAIL: Final = {
    "sender": _SENDER,
    "activate": "https://origin.example/activate?token={token}",
    "recover": "https://origin.example/recover?token={token}",
}
_INSERT: Final = (
    "INSERT INTO accounts.accounts (email, login) VALUES (%s, %s) ON CONFLICT (login) DO NOTHING RETURNING id"
)
_OF_ACCOUNT: Final = """
SELECT t.id, t.action::text, t.secret, t.code, t.expires_at, t.created_at, a.email, a.login, a.language
  FROM accounts.tokens t JOIN accounts.accounts a ON a.id = t.account WHERE a.id = %s
"""
_UNCOLLECTED: Final = "SELECT count(*) FROM accounts.tokens WHERE collected_at IS NULL"
_QUEUED: Final = "SELECT count(*) FROM archive"


async def collectors(system: System) -> tuple[Daemon, ...]:
    """Accounts in the queue's database, and two collectors of them."""
    await asyncio.to_thread(account_schema.install, system.uri, "accounts")
    key = system.folder / "accounts.key"
    key.write_text(_KEY)
    key.chmod(0o600)
    settings = {
        "accounts": {"schema": "accounts"},
        "batch": {"least": 5, "most": 20},
        "poll": "500ms",
        "keys": [{"id": "k", "file": str(key)}],
        "mail": _MAIL,
    }
    return tuple([await system.collector(name, **settings) for name in ("one", "two")])


class SignUps(Application):
    """Inserts accounts."""

    def __init__(self, accounts: Accounts, uri: str, installation: str, *, box: str) -> None:
        super().__init__(accounts)
        self._uri = uri
        self._box = box
        self._numbers = count(1)
        mail = AccountMail.model_validate(_MAIL)
        self._composer = Composer(mail, Templates(None, "en"), Signer(bytes.fromhex(_KEY), "k"), installation)

    async def session(self) -> None:
        """Sign up one account after another; each until it is committed."""
        connection: psycopg.AsyncConnection[Any] | None = None
        while self.open:
            if await self.is_ahead():
                continue
            number = next(self._numbers)
            login = f"{number:06}"
            sample = Sample(_SENDER, (f"{login}.{self._box}@{DOMAINS[number % len(DOMAINS)]}",), b"")
            self.accounts.submit(sample)
            while connection is None or not await self._committed(connection, login, sample):
                connection = await self._connected(connection)
            self.accounts.answer(sample, ["250 committed"], monotonic())
            self.sent += 1
        if connection is not None:
            await connection.close()

    async def _committed(self, connection: psycopg.AsyncConnection[Any], login: str, sample: Sample) -> bool:
        """Whether COMMIT was answered; the account of an earlier COMMIT, whose answer was lost, counts."""
        [email] = sample.recipients
        try:
            async with connection.transaction():
                inserted = await (await connection.execute(_INSERT, (email, login))).fetchone()
                if inserted is not None:
                    row = await (await connection.execute(_OF_ACCOUNT, inserted)).fetchone()
                    assert row is not None
                    self.accounts.expect((_SENDER, email), self._composer(Token(*row)).content)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            return False
        return True

    async def _connected(self, before: psycopg.AsyncConnection[Any] | None) -> psycopg.AsyncConnection[Any] | None:
        """A connection, once the server answers; None after a breath."""
        if before is not None:
            await before.close()
        try:
            return await psycopg.AsyncConnection.connect(self._uri, autocommit=True)
        except psycopg.OperationalError:
            self.accounts.refusals += 1
            await asyncio.sleep(BREATH)
            return None

    async def is_pending(self, arena: Arena) -> bool:
        """Whether tokens wait for a collector."""
        return bool(await arena.value(_UNCOLLECTED))

    async def broken(self, arena: Arena) -> list[str]:
        """Tokens that were not queued, or twice."""
        queued, waiting = await arena.value(_QUEUED), await arena.value(_UNCOLLECTED)
        found = {
            f"{self.sent} accounts signed up, mail for {queued} was queued": queued != self.sent,
            f"{waiting} tokens were not collected": waiting > 0,
        }
        return [what for what, is_so in found.items() if is_so]
