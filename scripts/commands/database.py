"""database — start, stop and query the embedded PostgreSQL

Owns: `pillarbox database start|stop|status`, for the server behind `database.uri: "embedded:"` of smtpd.yaml.
Guarantees: start and stop are idempotent and say what they found. `status` exits 0 when clients are accepted
and 3 when not, as LSB init scripts and pg_ctl do.
Raises: DatabaseUnavailable; PillarboxError where smtpd.yaml names a server of its own.
See: shared/postgres/embedded/embedded.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.options import add_config
from scripts.output import records
from scripts.up.only_one import who_has
from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError
from shared.postgres.database import is_embedded
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    import argparse

NOT_RUNNING = 3  # LSB core specification, init script actions: program is not running


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `database` and its verbs to the command line."""
    parser = subparsers.add_parser("database", help="start, stop and query the embedded PostgreSQL")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("start", help="start it unless it runs; wait until it accepts connections")
    _add_var(verb)
    verb.set_defaults(func=start)

    verb = verbs.add_parser("stop", help="stop it and wait until it is gone")
    _add_var(verb)
    verb.add_argument(
        "--mode",
        choices=("fast", "immediate", "smart"),
        default="fast",
        help="fast disconnects clients, smart waits for them, immediate leaves recovery to the next start "
        "(default: %(default)s)",
    )
    verb.set_defaults(func=stop)

    verb = verbs.add_parser("status", help="say if it runs, and where")
    _add_var(verb)
    verb.set_defaults(func=status)


def start(options: argparse.Namespace) -> int:
    """Make sure the server runs and print its libpq URI."""
    uri = embedded.ensure_running(_var(options))
    return records.tell(uri, {"uri": uri}, as_json=options.json)


def stop(options: argparse.Namespace) -> int:
    """Stop the server; one that does not run is stopped already."""
    var = _var(options)
    stopped = embedded.stop(var, mode=options.mode)
    words = f"stopped PostgreSQL under {var}" if stopped else f"no PostgreSQL runs under {var}"
    if stopped and (who := who_has(var)):
        sys.stderr.write(f"pillarbox: `pillarbox up` ({who}) starts it again; to stop both, stop that one\n")
    return records.tell(words, {"stopped": stopped}, as_json=options.json)


def status(options: argparse.Namespace) -> int:
    """Print what runs there; exit status 0 only when it accepts connections."""
    var = _var(options)
    found = embedded.status(var)
    ready = found is not None and found.ready
    if options.json:
        shown = (
            {"running": False}
            if found is None
            else {
                "running": True,
                "ready": found.ready,
                "pid": found.pid,
                "uri": found.uri,
                "data": str(found.data),
                "version": found.version,
            }
        )
        records.one(shown)
    elif found is None:
        print(f"no PostgreSQL runs under {var}")
    else:
        state = "accepts connections" if ready else "is starting or stopping"
        print(f"PostgreSQL {found.version} (pid {found.pid}) {state}: {found.uri}")
    return 0 if ready else NOT_RUNNING


def _add_var(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--var", type=Path, metavar="DIR", help="where the server lives (environment.var of smtpd.yaml)"
    )
    parser.add_argument("--json", action="store_true", help="JSON for programs")


def _var(options: argparse.Namespace) -> Path:
    """The folder of the embedded server."""
    if options.var is not None:
        return Path(options.var)
    file = options.config / "smtpd.yaml"
    environment = load_smtpd(file).environment
    if not is_embedded(environment.database.uri):
        raise PillarboxError(
            f"{file}: environment.database.uri names a server that `pillarbox database` does not manage; allowed here: "
            "embedded:, or --var DIR"
        )
    return environment.var
