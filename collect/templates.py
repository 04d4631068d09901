"""templates — the texts of account mail, by language and action

Owns: finding, checking and rendering the templates: `LANGUAGE/ACTION.subject`, `.txt` and `.html`.
Guarantees: values are escaped in HTML. A name that a template uses and that does not exist is an error when templates
    are read, not when mail is due. The subject is one line.
Raises: ConfigError naming the file and what is wrong with it.
See: https://jinja.palletsprojects.com; docs/how-to/send/account-mail.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from collect.token import ACTIONS, Token
from shared.errors import ConfigError, in_words

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARTS: Final = ("subject", "txt", "html")
SAMPLE: Final = Token(
    id=4711,
    action="activation",
    secret=bytes(range(32)),
    code="06435",
    expires_at=1_735_710_663,
    created_at=1_735_709_763,
    email="ann@example.com",
    login="ann",
)


@dataclass(frozen=True, slots=True)
class Text:
    """One rendered mail."""

    subject: str
    plain: str
    html: str


class Templates:
    """The templates of one folder, read and tried."""

    def __init__(self, folder: Path | None, language: str) -> None:
        """`folder` None: those that Pillarbox brings. Reads and renders every template once."""
        place = Path(str(files("collect") / "templates")) if folder is None else folder
        environment = ImmutableSandboxedEnvironment(
            loader=jinja2.FileSystemLoader(place),
            autoescape=lambda name: name is not None and name.endswith(".html"),
            undefined=jinja2.StrictUndefined,
            auto_reload=False,
        )
        try:
            names = sorted(each.name for each in place.iterdir() if each.is_dir() and not each.name.startswith("."))
        except OSError as error:
            raise ConfigError(f"mail.templates: {place} cannot be read: {error.strerror}") from None
        self._default = language.lower()
        self._templates = {
            (name.lower(), action, part): _template(environment, place, f"{name}/{action}.{part}")
            for name in names
            for action in ACTIONS
            for part in _PARTS
        }
        self.languages = [name.lower() for name in names]
        if self._default not in self.languages:
            raise ConfigError(
                f"mail.language: {place} has no templates for {language}; allowed: {', '.join(names) or 'none yet'}"
            )
        for name in self.languages:
            for action in ACTIONS:
                self.render(action, name, values(SAMPLE, "https://example.com/?token=sample"))

    def chosen(self, language: str | None) -> str:
        """The language to write in: the account's, else the one without its region, else the default."""
        wanted = (language or "").lower()
        candidates = (wanted, wanted.partition("-")[0])
        return next((each for each in candidates if each in self.languages), self._default)

    def render(self, action: str, language: str | None, given: Mapping[str, object]) -> Text:
        """The mail for this action in this language."""
        name = self.chosen(language)
        parts = []
        for part in _PARTS:
            try:
                parts.append(self._templates[name, action, part].render(given))
            except jinja2.TemplateError as error:
                raise ConfigError(f"mail.templates: {name}/{action}.{part}: {in_words(error)}") from None
        subject, plain, html = parts
        return Text(" ".join(subject.split()), plain, html)


def values(token: Token, link: str) -> dict[str, object]:
    """What templates may use."""
    return {
        "login": token.login,
        "email": token.email,
        "link": link,
        "code": token.code,
        "expires": datetime.fromtimestamp(token.expires_at, UTC),
        "minutes": max(1, (token.expires_at - token.created_at) // 60),
    }


def _template(environment: jinja2.Environment, place: Path, name: str) -> jinja2.Template:
    try:
        return environment.get_template(name)
    except jinja2.TemplateNotFound:
        raise ConfigError(f"mail.templates: {place / name} is missing") from None
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"mail.templates: {place / name}:{error.lineno}: {in_words(error)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"mail.templates: {place / name} cannot be read: {in_words(error)}") from None
