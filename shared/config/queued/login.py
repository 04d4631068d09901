"""login — the login at a next hop, in queued.yaml

Owns: the section `auth` of a transport's connection and of its hosts.
Guarantees: the models hold the places of secrets, never the secrets. Exactly one of password, token and oauth is given,
    and the mechanisms are those that can use it. Credentials go over verified TLS unless `over` allows less.
See: RFC 4954; RFC 4616 (PLAIN); RFC 7677 (SCRAM-SHA-256); RFC 7628 (OAUTHBEARER); RFC 6749 section 6 (refresh);
    Postfix smtp_sasl_password_maps, smtp_sasl_mechanism_filter and smtp_sasl_security_options;
    docs/how-to/deliver/log-in-to-a-relay.md
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from shared.config.fields import Checked, FilePath, Interval, Section, Text, matching, required, setting
from shared.url import parts_of

Mechanism = Literal["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN", "LOGIN", "OAUTHBEARER", "XOAUTH2"]
#: The strongest first: the first one that the host offers too is used.
BY_PASSWORD: Final[tuple[Mechanism, ...]] = ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN", "LOGIN")
BY_TOKEN: Final[tuple[Mechanism, ...]] = ("OAUTHBEARER", "XOAUTH2")
#: Those used where no list says otherwise: which channel binding a server knows, its offer does not say.
_UNASKED: Final = tuple(each for each in (*BY_PASSWORD, *BY_TOKEN) if not each.endswith("-PLUS"))

Over = Literal["verified_tls", "any_tls", "cleartext"]
# A control character would end a line of an exchange, or part its fields (RFC 4616 section 2, RFC 7628 section 3.1).
_plain = matching(r"[^\x00-\x1f\x7f]{1,255}", "1 to 255 characters without control characters")
UserName = Annotated[str, Checked(_plain.read, {"type": "string", "minLength": 1})]
_URL: Final = re.compile(r"https://[!->A-~]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _token_url(value: object) -> str:
    if isinstance(value, str) and _URL.fullmatch(value) and parts_of(value):
        return value
    # Not the value: what is before an @ or behind a ? may be a secret. A URL that is accepted is in log lines.
    raise ValueError("the value is not usable here; allowed: a URL that begins with https://, without @ and ?")


TokenUrl = Annotated[str, Checked(_token_url, {"type": "string", "pattern": "^https://"})]


def _variable(value: object) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    # Not the value: it may be the secret itself, written in the wrong place.
    raise ValueError("the value is not the name of an environment variable; allowed: letters, digits and underscore")


Variable = Annotated[str, Checked(_variable, {"type": "string", "pattern": f"^{_NAME.pattern}$"})]


def _one_of(section: Section, *names: str) -> None:
    """Refuse a section that gives none of these keys, or several."""
    given = [name for name in names if getattr(section, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise ValueError(f"{found} is given; allowed: one of {', '.join(names)}")


class Secret(Section):
    """Where a secret is stored."""

    file: FilePath | None = setting(
        None,
        "A file that contains it on one line; read at start and at each reload. Only its owner and group may have "
        "access.",
        unit="path",
        absent="not from a file",
    )
    environment: Variable | None = setting(
        None,
        "An environment variable that contains it; where NAME is not set, NAME_FILE names a file that does.",
        unit="name",
        absent="not from the environment",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        _one_of(self, "file", "environment")
        return self


class Token(Section):
    """Where an access token is stored that another program renews."""

    file: FilePath | None = setting(
        None,
        "A file that contains it on one line; read for each login. Only its owner and group may have access.",
        unit="path",
        absent="not from a file",
    )
    environment: Variable | None = setting(
        None,
        "An environment variable that contains it; where NAME is not set, NAME_FILE names a file that does.",
        unit="name",
        absent="not from the environment",
    )
    command: Annotated[list[Text], Field(min_length=1)] | None = setting(
        None,
        "A program with arguments that prints it on one line; run without a shell, for at most 30 seconds.",
        unit="list of texts",
        absent="not from a program",
    )
    lifetime: Interval = setting(
        "5m",
        "How long to use a token that `command` printed before running it again; a refused token is not used again.",
        unit="duration",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        _one_of(self, "file", "environment", "command")
        return self


class OAuth(Section):
    """How access tokens are fetched from an OAuth 2.0 server."""

    url: TokenUrl = required("The token endpoint.", unit="https URL")
    clientid: Text = required("Our client id.", unit="text")
    clientsecret: Secret | None = setting(None, "Where our client secret is.", unit="section", absent="a public client")
    refresh: Secret | None = setting(
        None,
        "Where the refresh token is (RFC 6749 section 6). A newer one that the server issues is kept in memory only.",
        unit="section",
        absent="the client credentials grant, RFC 6749 section 4.4",
    )
    scope: Text | None = setting(None, "The scopes to ask for.", unit="text", absent="the server's default")
    ca: FilePath | None = setting(
        None,
        "The certificates that the server's certificate must come from, in PEM.",
        unit="path",
        absent="those of the system",
    )


class Auth(Section):
    """The login at the host."""

    user: UserName = required("The user name.", unit="text")
    password: Secret | None = setting(None, "Where the password is.", unit="section", absent="no password")
    token: Token | None = setting(None, "Where an access token is.", unit="section", absent="no token")
    oauth: OAuth | None = setting(
        None, "The OAuth 2.0 server that issues access tokens.", unit="section", absent="no token"
    )
    mechanisms: Annotated[list[Mechanism], Field(min_length=1)] | None = setting(
        None,
        "The mechanisms that may be used (Postfix smtp_sasl_mechanism_filter); the strongest of those that the host "
        "offers is used. SCRAM-SHA-256-PLUS binds by tls-server-end-point (RFC 5929), which not every server supports.",
        unit="list of names",
        absent="SCRAM-SHA-256, PLAIN, LOGIN with a password; OAUTHBEARER, XOAUTH2 with a token",
    )
    over: Over = setting(
        "verified_tls",
        "verified_tls: credentials are sent only to a host that has proved its name, whatever tls.mode is; any_tls: "
        "under TLS without that proof, so an attacker on the path may read and use them; cleartext: unencrypted, "
        "readable by anyone on the path.",
        unit="word",
    )

    @property
    def allowed(self) -> tuple[Mechanism, ...]:
        """The mechanisms that may be used, the strongest first."""
        able = BY_PASSWORD if self.password is not None else BY_TOKEN
        wanted = _UNASKED if self.mechanisms is None else self.mechanisms
        return tuple(each for each in able if each in wanted)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _one_of(self, "password", "token", "oauth")
        able = BY_PASSWORD if self.password is not None else BY_TOKEN
        for name in self.mechanisms or ():
            if name not in able:
                what = "a password" if self.password is not None else "a token"
                raise ValueError(f"{name} cannot be used with {what}; allowed: {', '.join(able)}")
        return self
