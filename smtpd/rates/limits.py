"""limits — the limits on one client, network and user

Owns: the interface for the connection, authentication and policy; the limits that concern a client.
Guarantees: exact over all processes of the host, as long as the counting process answers. A caller waits for it no
    longer than smtpd.rates.client allows; without an answer each process counts for itself against its share. Refusals
    are 421 and 450, never 5xx: the same mail is accepted later.
See: config/smtpd.yaml `rates`; anvil(8) for the idea of one counting server.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, Protocol

from shared.observe import events
from smtpd import replies
from smtpd.envelope import places
from smtpd.rates.counters import OWN, Limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.config.fields import Network
    from shared.config.smtpd.rates import Rates as Settings
    from smtpd.envelope.client import Client

type Countable = Literal["message", "recipient"]

_HOUR: Final = 3600.0
_NETWORKS: Final = 4  # it takes so many to fill all sessions
_BLOCK: Final = 48  # bits: the most IPv6 that one site is usually given (RIPE-690)
_OF_BLOCK: Final = 2  # a block may have the sessions of so many networks


@dataclass(frozen=True, slots=True)
class RateVerdict:
    """Whether a client may go on; if not, its reply, and the seconds after which it would be accepted."""

    allowed: bool
    reply: str = ""
    seconds: float = 0.0
    token: int = 0  # of a session that was counted; 0: nothing to give back


ALLOWED: Final = RateVerdict(allowed=True)


class Rates(Protocol):
    """The interface for the rest of smtpd."""

    async def connected(self, client: Client) -> RateVerdict:
        """A connection was made: count it, and the session for as long as `disconnected` is not called."""

    def disconnected(self, verdict: RateVerdict) -> None:
        """The session that `connected` gave this verdict on has ended."""

    async def hit(self, what: Countable, client: Client, n: int = 1) -> RateVerdict:
        """The client is about to send a message (at MAIL), or names n recipients (at RCPT)."""

    async def count(self, key: str, most: int, window: float, n: int = 1) -> float:
        """Count n hits of a key of one's own against `most` within `window` seconds: seconds to wait, 0 if allowed.

        n=0 asks whether one hit would be allowed and counts nothing; n=-1 gives one back that was counted. Keys of
        different users of this method must not meet: begin them with one's own name (`auth/192.0.2.1`,
        `policy/RULE/VALUE`).
        """


class RateCounts(Protocol):
    """Where it is counted: in this process, or in the supervisor for all of them."""

    async def hit(self, limits: Sequence[Limit], n: int) -> float:
        """Seconds to wait; 0 when all limits allow it, and it is counted then."""

    async def open(
        self, token: int, sessions: Sequence[tuple[str, int]], limits: Sequence[Limit]
    ) -> tuple[bool, float]:
        """Whether one more session is allowed at once, and the seconds until the rate of connections allows it."""

    def close(self, token: int) -> None:
        """The session with this token has ended."""


class ClientRates:
    """The limits of smtpd.yaml, applied to clients."""

    def __init__(self, settings: Settings, trusted: Sequence[Network], counts: RateCounts, room: int = 0) -> None:
        """`trusted`: relay.networks, exempt unless the settings name other networks.

        room: the sessions of all processes, of which a network has a part where the settings say nothing; 0: no limit.
        """
        self._counts = counts
        self._tokens = count(1)
        self.configure(settings, trusted, room)

    def configure(self, settings: Settings, trusted: Sequence[Network], room: int = 0) -> None:
        """Use these settings from now on; what was counted stays counted."""
        self._settings = settings
        network = settings.network.sessions
        self._of_network = -(-room // _NETWORKS) if network is None else network
        self._window = settings.window.total_seconds()
        self._exempt = trusted if settings.exempt is None else settings.exempt
        self._any = {
            "message": bool(settings.address.messages or settings.network.messages),
            "recipient": bool(settings.address.recipients or settings.network.recipients),
        }

    async def connected(self, client: Client) -> RateVerdict:
        """As in Rates."""
        places = self._places(client.address)
        if places is None:
            return ALLOWED
        address, network = self._settings.address, self._settings.network
        pairs = zip(places, (address.sessions, self._of_network), strict=True)
        sessions = [(f"session/{place}", most) for place, most in pairs if most]
        sessions += self._block(client.address)
        limits = self._limits("connection", places, address.connections, network.connections)
        if not sessions and not limits:
            return ALLOWED
        token = next(self._tokens)
        try:
            fits, wait = await self._counts.open(token, sessions, limits)
        except BaseException:
            self._counts.close(token)  # the client has gone while we asked, and its place would not be given back
            raise
        if not fits:
            events.emit("rates.exceeded", client=client.address, limit="session", seconds=0.0)
            return RateVerdict(allowed=False, reply=replies.R421_TOO_MANY_SESSIONS)
        if wait:
            events.emit("rates.exceeded", client=client.address, limit="connection", seconds=wait)
            return RateVerdict(allowed=False, reply=replies.R421_TOO_MANY_CONNECTIONS, seconds=wait)
        return RateVerdict(allowed=True, token=token)

    def disconnected(self, verdict: RateVerdict) -> None:
        """As in Rates."""
        if verdict.token:
            self._counts.close(verdict.token)

    async def hit(self, what: Countable, client: Client, n: int = 1) -> RateVerdict:
        """As in Rates."""
        limits = self._user_limits(what, client)
        if self._any[what] and (places := self._places(client.address)) is not None:
            address, network = self._settings.address, self._settings.network
            if what == "message":
                limits += self._limits(what, places, address.messages, network.messages)
            else:
                limits += self._limits(what, places, address.recipients, network.recipients)
        if not limits or not (wait := await self._counts.hit(limits, n)):
            return ALLOWED
        events.emit("rates.exceeded", client=client.address, limit=what, seconds=wait)
        reply = replies.R450_TOO_MANY_MESSAGES if what == "message" else replies.R450_TOO_MANY_RECIPIENTS
        return RateVerdict(allowed=False, reply=reply, seconds=wait)

    async def count(self, key: str, most: int, window: float, n: int = 1) -> float:
        """As in Rates."""
        return await self._counts.hit([Limit(f"{OWN}{key}", most, window)], n)

    def _limits(self, what: str, places: tuple[str, str], *most: int) -> list[Limit]:
        """For the address and for the network, where there is a limit."""
        pairs = zip(places, most, strict=True)
        return [Limit(f"{what}/{place}", limit, self._window) for place, limit in pairs if limit]

    def _user_limits(self, what: Countable, client: Client) -> list[Limit]:
        """The user's own limit by the hour, or else the common one."""
        user = client.user
        if user is None:
            return []
        own = user.messages if what == "message" else user.recipients
        if own is not None:
            return [Limit(f"{what}/user/{user.name}", own, _HOUR)] if own else []
        general = self._settings.user.messages if what == "message" else self._settings.user.recipients
        return [Limit(f"{what}/user/{user.name}", general, self._window)] if general else []

    def _places(self, client: str) -> tuple[str, str] | None:
        """The names of the client's address and network; None when it is exempt, or gone before it could be asked."""
        if not client:
            return None
        address = places.parsed(client)
        if address is not None and any(address in network for network in self._exempt):
            return None
        network = self._settings.network
        site = places.network(client, network.ipv4prefix, network.ipv6prefix)
        return f"address/{places.host(client)}", f"network/{site}"

    def _block(self, client: str) -> list[tuple[str, int]]:
        """The IPv6 block of a client and the sessions it may have; nothing where a network is no smaller."""
        larger = self._settings.network.ipv6prefix > _BLOCK and isinstance(places.parsed(client), IPv6Address)
        if not self._of_network or not larger:
            return []
        return [(f"session/block/{places.network(client, 0, _BLOCK)}", _OF_BLOCK * self._of_network)]


class Unlimited:
    """Rates without limits: for servers without clients to fear, and for tests."""

    async def connected(self, _client: Client) -> RateVerdict:
        """As in Rates."""
        return ALLOWED

    def disconnected(self, _verdict: RateVerdict) -> None:
        """As in Rates."""

    async def hit(self, _what: Countable, _client: Client, _n: int = 1) -> RateVerdict:
        """As in Rates."""
        return ALLOWED

    async def count(self, _key: str, _most: int, _window: float, _n: int = 1) -> float:
        """As in Rates."""
        return 0.0
