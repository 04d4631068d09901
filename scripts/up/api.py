"""api — whether `pillarbox up` runs httpd: where httpd.yaml is in the folder, and its packages are installed

Raises: ConfigError for a file that cannot be used, or that names another database than smtpd.yaml.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from shared.config.httpd.load import load_httpd
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.smtpd.settings import SmtpdConfig


def why_not(folder: Path, smtpd: SmtpdConfig) -> str | None:
    """Why it does not run; None: it does."""
    file = folder / "httpd.yaml"
    if not file.exists():
        return f"{file} is missing"
    ours, theirs = load_httpd(file).environment, smtpd.environment
    if (ours.database.uri, ours.var) != (theirs.database.uri, theirs.var):
        raise ConfigError(f"{folder}: smtpd.yaml and httpd.yaml name different databases; both must name the same")
    if any(find_spec(name) is None for name in ("fastapi", "uvicorn", "httptools")):
        return "its packages are missing; allowed: pip install 'pillarbox[web]'"
    return None
