"""command — `pillarbox partitions`: show the queue's leaves, and repartition while mail flows

Owns: the verbs show, plan, apply, split, merge, move, balance; preview and consent.
Guarantees: nothing is changed without a preview and a yes: `--yes`, or the answer at a terminal. A verb that was killed
    finishes when it is run again. The lines that smtpd.yaml needs afterwards are printed.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/operate/repartition.md; sql/README.md, "Repartitioning".
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from operate.partitions import layout, look, run
from operate.partitions.audit import read_faults, repairs
from operate.partitions.balance import balance as balanced
from operate.partitions.balance import read_report
from scripts import one_connection
from scripts.options import count, finish
from scripts.output import consent
from scripts.output.interrupted import telling
from scripts.partitions import show
from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from operate.partitions.layout import Layout

    type Change = Callable[[Layout], Layout]


_AGAIN: Final = "mail is complete and flows; the same command, or `pillarbox partitions apply`, does the rest"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `partitions` and its verbs to the command line."""
    parser = subparsers.add_parser("partitions", help="show the queue's leaves, and repartition")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("show", help="the leaves, their ids, recipients and faults; status 1 if there are faults")
    _finish(verb, show_leaves)

    verb = verbs.add_parser("plan", help="the steps to the leaves of smtpd.yaml, without taking them")
    forms = verb.add_mutually_exclusive_group()
    for form, meaning in (("json", "one JSON object"), ("sql", "the exact SQL")):
        forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=meaning)
    verb.set_defaults(form="table")
    _finish(verb, plan, json=False)

    verb = verbs.add_parser("apply", help="make the leaves those of smtpd.yaml")
    verb.add_argument("--repair", action="store_true", help="also repair the faults that `show` lists")
    _finish(verb, apply, acts=True)

    verb = verbs.add_parser("split", help="give ids of a leaf leaves of their own")
    verb.add_argument("leaf", metavar="LEAF", help="its suffix; def is the default leaf")
    verb.add_argument(
        "words", metavar="[into] NAME=ID,ID…", nargs="+", help="a new leaf and its ids; ids not named stay in LEAF"
    )
    _finish(verb, split, acts=True)

    verb = verbs.add_parser("merge", help="make one leaf of several")
    verb.add_argument(
        "words",
        metavar="LEAF… into NAME",
        nargs="+",
        help="NAME is one of the leaves, or a new name; def stays as it is",
    )
    _finish(verb, merge, acts=True)

    verb = verbs.add_parser("move", help="move one id to another leaf; def is the default leaf")
    verb.add_argument("id", metavar="ID", help="the partition id")
    verb.add_argument("leaf", metavar="LEAF", help="the suffix of a leaf that is there")
    _finish(verb, move, acts=True)

    verb = verbs.add_parser("balance", help="propose leaves that share the recipients waiting now evenly")
    verb.add_argument("--leaves", type=count, metavar="N", help="how many (default: as many as there are)")
    sources = verb.add_mutually_exclusive_group()
    sources.add_argument(
        "--weight", action="append", default=[], metavar="ID=N", help="instead of counting; repeatable"
    )
    sources.add_argument("--from-report", type=Path, metavar="FILE", help="weights of `analytics report --json`")
    forms = verb.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="one JSON object")
    forms.add_argument("--apply", action="store_true", help="make these leaves")
    _finish(verb, balance, acts=True, json=False)


def _finish(
    verb: argparse.ArgumentParser, func: Callable[[argparse.Namespace], int], *, acts: bool = False, json: bool = True
) -> None:
    if acts:
        consent.add_consent(verb)
    finish(verb, func, json=json)


def show_leaves(options: argparse.Namespace) -> int:
    """Print the leaves; status 1 when one of them has a fault."""
    return asyncio.run(_show(options))


async def _show(options: argparse.Namespace) -> int:
    conninfo, configured = _configured(options)
    async with run.connected(conninfo) as connection:
        state = await run.read_state(connection)
        faults = await read_faults(connection)
        counts = await look.counts(connection)
    show.leaves(state, counts, faults, configured, as_json=options.json)
    return 1 if faults else 0


def plan(options: argparse.Namespace) -> int:
    """Print the steps to what smtpd.yaml says."""
    return asyncio.run(_plan(options))


async def _plan(options: argparse.Namespace) -> int:
    conninfo, configured = _configured(options)
    async with run.connected(conninfo) as connection:
        state = await run.read_state(connection)
        found, acts = await run.planned(connection, state, configured)
    show.plan(found, acts, state, options.form)
    return 0


def apply(options: argparse.Namespace) -> int:
    """Make the leaves those of smtpd.yaml."""
    _, configured = _configured(options)
    return asyncio.run(_act(options, lambda _: configured, repair=options.repair))


def split(options: argparse.Namespace) -> int:
    """Give ids of a leaf leaves of their own."""
    words = options.words[1:] if options.words[0] == "into" else options.words
    parts = layout.read_parts(words)
    return asyncio.run(_act(options, lambda present: layout.split(present, options.leaf, parts)))


def merge(options: argparse.Namespace) -> int:
    """Make one leaf of several."""
    *leaves, name = options.words
    if leaves[-1:] != ["into"] or not leaves[:-1]:
        raise PillarboxError("partitions merge: expected LEAF… into NAME")

    def idle(present: Layout) -> str:
        return show.merged(present, layout.absent(present, leaves[:-1]), name)

    return asyncio.run(_act(options, lambda present: layout.merge(present, leaves[:-1], name), idle=idle))


def move(options: argparse.Namespace) -> int:
    """Move one id to another leaf."""
    return asyncio.run(_act(options, lambda present: layout.move(present, options.id, options.leaf)))


def balance(options: argparse.Namespace) -> int:
    """Propose an even layout; with --apply, make it."""
    given = _weights(options.weight) if options.from_report is None else read_report(options.from_report)
    return asyncio.run(_balance(options, given))


async def _balance(options: argparse.Namespace, given: dict[str, float]) -> int:
    conninfo, _ = _configured(options)
    async with run.connected(conninfo) as connection:
        state = await run.read_state(connection)
        counts = {} if given else await look.counts(connection)
    weights = given or look.waiting(counts)
    proposed = balanced(state.layout, weights, options.leaves)
    show.proposal(proposed, state.layout, weights, as_json=options.json)
    return await _act(options, lambda _: proposed) if options.apply and proposed != state.layout else 0


async def _act(
    options: argparse.Namespace, change: Change, *, repair: bool = False, idle: Callable[[Layout], str] | None = None
) -> int:
    """Preview, consent, and the steps. `idle`: why there is nothing to do, when it is not as plain as that."""
    conninfo, configured = _configured(options)
    async with run.connected(conninfo) as connection:
        state = await run.read_state(connection)
        wanted, mending = change(state.layout), repairs(await read_faults(connection)) if repair else []
        found, acts = await run.planned(connection, state, wanted)
        why = {"idle": idle(state.layout)} if idle else {}
        every = [mending, *acts] if mending else acts
        if not options.json:
            show.plan(found, every, state, "table", **why)
        tell = _aside if options.json else print
        if every:
            if not await consent.agreed(options, "partitions"):
                return 0
            with telling(lambda: _AGAIN):
                async with run.alone(connection):
                    await run.take(connection, mending, tell)
                await run.apply(connection, wanted, tell)
    if options.json:
        show.done(every, wanted, configured)
    elif wanted != configured:
        show.paste(wanted)
    return 0


def _aside(line: str) -> None:
    """Tell progress where standard output is for JSON."""
    sys.stderr.write(f"{line}\n")


def _configured(options: argparse.Namespace) -> tuple[str, Layout]:
    """The database, and the leaves smtpd.yaml names."""
    config = load_smtpd(options.config / "smtpd.yaml")
    settings = config.environment.database
    conninfo = one_connection.started(settings.uri, config.environment.var)
    return conninfo, layout.wanted(settings.partitions.leaves)


def _weights(words: list[str]) -> dict[str, float]:
    weights = {}
    for word in words:
        id_, _, number = word.partition("=")
        layout.check_id(id_)
        try:
            weights[id_] = float(number)
        except ValueError:
            weights[id_] = -1.0
        if not 0 <= weights[id_] < float("inf"):
            raise PillarboxError(f"--weight {word}: not usable; allowed: ID=N with a number from 0")
    return weights
