"""oidc — the provider whose tokens people may show to httpd, and at which they may sign in to the console

Owns: the section `oidc` of httpd.yaml.
Guarantees: the provider is asked over HTTPS, or on this host. The API refuses a token that was made for the console:
    the client and the audience have different names.
See: OpenID Connect Discovery 1.0; docs/how-to/send/use-api-keys.md; docs/how-to/review/review-in-a-browser.md
"""

import re
from typing import Annotated, Final, Self

from pydantic import model_validator

from shared.config.fields import Checked, Section, Text, required, setting
from shared.config.queued.login import Secret
from shared.url import parts_of

#: HTTPS, or HTTP of this host; a host, perhaps a port and a path, and nothing else.
_URL: Final = re.compile(
    r"(?:https://[A-Za-z0-9.-]+|http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?(?:/[!-~]*)?"
)


def is_url(value: object) -> bool:
    """Whether the provider may be asked there."""
    return isinstance(value, str) and _URL.fullmatch(value) is not None and parts_of(value) is not None


def _issuer(value: object) -> str:
    if isinstance(value, str) and is_url(value) and not {"?", "#"} & set(value):
        return value
    raise ValueError("the value is not usable here; allowed: the issuer's URL, which begins with https://")


Issuer = Annotated[str, Checked(_issuer, {"type": "string", "pattern": "^https?://"})]


def _address(value: object) -> str:
    if isinstance(value, str) and is_url(value) and not {"?", "#"} & set(value):
        return value.rstrip("/")
    raise ValueError("the value is not usable here; allowed: the URL of httpd, which begins with https://")


Address = Annotated[str, Checked(_address, {"type": "string", "pattern": "^https?://"})]


class HttpdOidcClient(Section):
    """What the provider knows the console as; with it people sign in to the console at their provider."""

    id: Text = required("The client's id at the provider.", unit="text")
    secret: Secret | None = setting(None, "Where the client's secret is.", unit="section", absent="a public client")
    url: Address | None = setting(
        None,
        "The address of httpd as browsers reach it. Register it with /console/sign-in/done behind it at the provider.",
        unit="https URL",
        absent="the address of the browser's request",
    )


class HttpdOidc(Section):
    """An OpenID Connect provider, whose tokens people may show instead of an API key."""

    issuer: Issuer = required("The provider, as its tokens name it in iss.", unit="https URL")
    audience: Text = required("What tokens for this API name in aud.", unit="text")
    claim: Text = setting(
        "sub",
        "The claim of a token that has the name of a principal, a person. It must be one that people cannot choose "
        "for themselves at the provider; email counts only where email_verified is true.",
        unit="text",
    )
    client: HttpdOidcClient | None = setting(
        None,
        "The client by which people sign in to the console at the provider; it must not be named as the audience is.",
        unit="section",
        absent="people sign in to the console by password alone",
    )

    @model_validator(mode="after")
    def _is_apart(self) -> Self:
        if self.client is not None and self.client.id == self.audience:
            raise ValueError(
                "client.id is the same as audience, so what is for the console would be a token for the API; allowed: "
                "two names"
            )
        return self
