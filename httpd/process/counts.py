"""counts — counts of rates for all processes of httpd, kept by their supervisor

Owns: the answers to children about keys, which are counted here, and about mail, which smtpd counts for both doors.
Guarantees: exact over all processes of this httpd. While smtpd does not answer, mail is counted here, as one httpd
    alone would count it. One child's question never waits for another's.
See: smtpd/process/supervisor.py, whose Counting this is; httpd/sending/rates.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from smtpd.rates.client import PATIENCE, RemoteCounts
from smtpd.rates.counters import Limit
from smtpd.rates.server import RateServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from httpd.sending.rates import SharedCounts
    from httpd.tally import Tally
    from smtpd.process.channel import Channel

#: Seconds that a child waits for an answer: a request can wait, and for mail its supervisor may wait for smtpd.
_PATIENCE: Final = 10 * PATIENCE


class Counting:
    """The supervisor's side."""

    def __init__(self, mail: SharedCounts, tally: Tally) -> None:
        self._mail = mail
        self._tally = tally
        self._keys = RateServer()
        self._asking: set[asyncio.Task[None]] = set()

    def asked(self, process: int, question: dict[str, Any], reply: Callable[[dict[str, object]], None]) -> None:
        """As in Counting of the supervisor."""
        if question.pop("of") == "keys":
            self._keys.asked(process, question, lambda found: reply({**found, "of": "keys"}))
            return
        asking = asyncio.ensure_future(self._ask_smtpd(question, reply))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    def gone(self, process: int) -> None:
        """As in Counting of the supervisor."""
        self._tally.clear(process)

    async def _ask_smtpd(self, question: dict[str, Any], reply: Callable[[dict[str, object]], None]) -> None:
        wait = await self._mail.hit([Limit(*each) for each in question["limits"]], question["n"])
        reply({"id": question["id"], "wait": wait, "of": "mail"})


class Asking:
    """A child's side: the counts of keys, and those of mail."""

    def __init__(self, channel: Channel, processes: int) -> None:
        """`processes`: how many share the limits."""
        self.keys = RemoteCounts(
            lambda question: channel.send({**question, "of": "keys"}), processes, patience=_PATIENCE
        )
        self.mail = RemoteCounts(
            lambda question: channel.send({**question, "of": "mail"}), processes, patience=_PATIENCE
        )

    def answered(self, answer: dict[str, Any]) -> None:
        """An answer has come."""
        (self.keys if answer["of"] == "keys" else self.mail).answered(answer)
