"""queue — the output that queues mail

Guarantees: where the accounts share the queue's database, mail is queued in the transaction that marks its tokens:
    exactly once. Elsewhere the queue commits first, so that a crash between the two commits hands a token over again,
    and its key of idempotency makes it one message. There no token is marked before its mail, queued now or by an
    earlier batch, is as durable as synchronous_commit = on makes it. A token is refused if no message can be made of
    it, or if PostgreSQL refuses the message's values; any other error ends the collector and marks none.
Raises: Refused when a mail of a batch is refused; NotDurable; PostgreSQL's errors otherwise.
See: sql/accounts/README.md, "Collecting"; sql/schema/07_enqueue.sql.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from collect.output import Refused
from shared.errors import ConfigError
from shared.observe import events
from shared.postgres import database
from shared.postgres.durable import durable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from collect.message import Composer, Message
    from collect.token import Token


class Queue:
    """Queues one message for each token."""

    def __init__(self, composer: Composer, elsewhere: database.Pool | None = None) -> None:
        """`elsewhere`: connections to the queue's database, if it is not that of the accounts."""
        self.composer = composer
        self._elsewhere = elsewhere

    async def hand_over(self, connection: database.Connection, tokens: Sequence[Token]) -> None:
        """Queue all of them, or none."""
        try:
            messages = [self.composer(token) for token in tokens]
        except (ConfigError, ValueError) as error:
            raise Refused from error
        try:
            async with self._to_queue(connection) as there:
                await self._enqueue(there, messages)
        except database.REFUSAL as error:
            if database.refuses_value(error):
                raise Refused from error
            raise
        events.emit("collect.queued", tokens=len(tokens))

    async def hand_over_apart(self, connection: database.Connection, tokens: Sequence[Token]) -> list[Token]:
        """Queue each in a transaction of its own within that of the batch."""
        refused = []
        for token in tokens:
            try:
                message = self.composer(token)
            except (ConfigError, ValueError) as error:
                refused.append(token)
                events.emit("collect.refused", token=token.id, error=error)
                continue
            try:
                async with self._to_queue(connection) as there, there.transaction():
                    await self._enqueue(there, [message])
            except database.REFUSAL as error:
                if database.is_used_key(error):
                    events.emit("collect.known", token=token.id)  # queued before, with other templates
                elif database.refuses_value(error):
                    refused.append(token)
                    events.emit("collect.refused", token=token.id, error=database.reason(error))
                else:
                    raise
        events.emit("collect.queued", tokens=len(tokens) - len(refused))
        return refused

    @asynccontextmanager
    async def _to_queue(self, connection: database.Connection) -> AsyncIterator[database.Connection]:
        """The connection that queues: the collector's own, or one to the other database, which commits at the end."""
        if self._elsewhere is None:
            yield connection
            return
        async with self._elsewhere.connection() as there:
            with durable(there):
                async with there.transaction():
                    await database.fetch(there, "token_elsewhere")
                    yield there

    async def _enqueue(self, connection: database.Connection, messages: Sequence[Message]) -> None:
        submissions = [
            {
                "sender": self.composer.sender,
                "recipients": [message.recipient],
                "content": message.content.decode(),
                "idempotency_key": message.key,
                "priority": message.priority,
                "jobid": message.jobid,
            }
            for message in messages
        ]
        await database.fetch(connection, "token_enqueue", submissions=json.dumps(submissions))
