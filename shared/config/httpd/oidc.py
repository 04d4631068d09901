"""oidc — the provider whose tokens people may show to httpd

Owns: the section `oidc` of httpd.yaml.
Guarantees: the provider is asked over HTTPS, or on this host.
See: OpenID Connect Discovery 1.0; docs/how-to/use-api-keys.md
"""

import re
from typing import Annotated, Final

from shared.config.fields import Checked, Section, Text, required, setting

#: HTTPS, or HTTP of this host; a host, perhaps a port and a path, and nothing else.
_URL: Final = re.compile(
    r"(?:https://[A-Za-z0-9.-]+|http://(?:127\.0\.0\.1|\[::1\]|localhost))(?::\d{1,5})?(?:/[!-~]*)?"
)


def is_url(value: object) -> bool:
    """Whether the provider may be asked there."""
    return isinstance(value, str) and _URL.fullmatch(value) is not None


def _issuer(value: object) -> str:
    if isinstance(value, str) and is_url(value) and not {"?", "#"} & set(value):
        return value
    raise ValueError("the value is not usable here; allowed: the issuer's URL, which begins with https://")


Issuer = Annotated[str, Checked(_issuer, {"type": "string", "pattern": "^https?://"})]


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
