"""web — `python -m scripts.bench.web`: the console over a long queue, in Chromium, and what its viewers cost delivery

Owns: a database with so many queued recipients, an httpd, a worker and a sink; pages loaded by Debian's Chromium;
    viewers who look at the first page while mail is delivered.
Guarantees: first_paint_ms is the slowest page's median until Chromium has painted something, filter_ms that of the
    slowest condition. p99_change_pct is how much later the slowest hundredth of mail arrives with viewers than in the
    mean of the two quiet spans around it; quiet_pct is how much these two differ, the noise of the machine.
See: docs/how-to/operate/operate-in-a-browser.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import mean, median
from time import monotonic
from typing import TYPE_CHECKING, Final

from playwright.async_api import async_playwright

from operate import sign_in
from scripts.bench import run
from scripts.bench.core.server import LEAVES, PARTITIONS
from scripts.bench.core.server import running as running_server
from scripts.daemons import DaemonProcess, Daemons
from scripts.sink.server import Sink
from shared import event_loop
from shared.errors import ConfigError, PillarboxError
from shared.postgres import database, migrate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.async_api import Page

_NAME: Final = "pillarbox bench"
_PORTION: Final = 50_000  # recipients that are queued in one statement
_PAGES: Final = ("now", "queue", "held")
_FILTERS: Final = (
    "queue?condition=state%3DDEFER",
    "queue?condition=recipientdomain%3Dd17.example",
    "queue?condition=recipientdomain%3Dnone.example",
)
_PAINT: Final = """() => new Promise(done => {
  const of = () => performance.getEntriesByName("first-contentful-paint")[0];
  if (of()) done(of().startTime);
  else new PerformanceObserver(() => of() && done(of().startTime)).observe({ type: "paint", buffered: true });
})"""
_HASH: Final = "$argon2 of a benchmark"
_progress = partial(run.progress, "bench-web")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.web", description="Measure the console.")
    parser.add_argument("--recipients", type=int, default=1_000_000, metavar="N", help="queued (default 1000000)")
    parser.add_argument("--loads", type=int, default=7, metavar="N", help="loads of each page (default 7)")
    parser.add_argument("--viewers", type=int, default=50, metavar="N", help="of the first page (default 50)")
    parser.add_argument("--seconds", type=float, default=10, metavar="N", help="each span of delivery (default 10)")
    parser.add_argument("--rate", type=float, default=40, metavar="N", help="messages in a second (default 40)")
    parser.add_argument("--var", type=Path, default=Path("var/bench-web"), metavar="DIR", help="emptied first")
    options = parser.parse_args(arguments)
    try:
        with running_server(options.var) as server:
            uri = server.place.uri()
            migrate.migrate(uri, LEAVES, PARTITIONS)
            print(event_loop.run(measure(options, uri)))
    except PillarboxError as error:
        _progress(str(error))
        return error.exit_status
    return 0


async def measure(options: argparse.Namespace, uri: str) -> str:
    """The figures in one line."""
    var: Path = options.var
    connection = await database.connect(uri, _NAME)
    await _fill(connection, options.recipients)
    async with AsyncExitStack() as stack:
        sink = await stack.enter_async_context(Sink())
        daemons = await stack.enter_async_context(Daemons())
        httpd = await _started(daemons, var, uri, sink.port)
        begun = await _session(connection)
        pages = await _loaded(options, httpd, begun)
        spans = []
        for viewers in (0, options.viewers, 0):
            _progress(f"delivery with {viewers} viewers")
            spans.append(await _delivered(options, connection, httpd, begun, viewers))
    await connection.close()
    quiet = mean((spans[0], spans[2]))
    first = max(pages[each] for each in _PAGES)
    slowest = max(pages[each] for each in _FILTERS)
    return (
        f"first_paint_ms={first:.0f} filter_ms={slowest:.0f} p99_change_pct={100 * (spans[1] - quiet) / quiet:.1f} "
        f"quiet_pct={100 * abs(spans[0] - spans[2]) / quiet:.1f} p99_ms={quiet:.0f} recipients={options.recipients}"
    )


async def _fill(connection: database.Connection, recipients: int) -> None:
    """Mail that waits until tomorrow: a tenth of it tried, a hundredth of it held."""
    for begin in range(0, recipients, _PORTION):
        most = min(recipients, begin + _PORTION)
        await database.fetch(connection, "bench_web_fill", begin=begin, most=most)
        _progress(f"{most} recipients are queued")
    await connection.execute("ANALYZE pillarbox.queue")


async def _started(daemons: Daemons, var: Path, uri: str, port: int) -> tuple[str, int]:
    """Where httpd listens, after it and a worker have started."""
    place = {"database": {"uri": uri}, "var": str(var), "log": {"level": "warning"}}
    transport = {"id": "default", "hostname": "bench.test", "connection": {"server": "127.0.0.1", "port": port}}
    files = {
        "smtpd": {"environment": place, "servers": [{"id": "mx", "hostname": "bench.test"}]},
        "queued": {"environment": place, "workers": [{"id": "w", "where": "true"}], "transports": [transport]},
        "httpd": {"environment": place, "listen": "127.0.0.1:0"},
    }
    for name, settings in files.items():
        (var / f"{name}.yaml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    made = []
    for name, more in (("queued", ("--worker", "w")), ("httpd", ())):
        arguments = ("-m", name, "--config", str(var / f"{name}.yaml"), *more)
        made.append(await daemons.start(DaemonProcess(name, arguments, var / f"{name}.log")))
    return made[-1].address


async def _session(connection: database.Connection) -> str:
    """The cookie of an admin."""
    link = await sign_in.link(connection, sign_in.FIRST, timedelta(hours=1), "http://127.0.0.1")
    await sign_in.use_link(connection, link.url.partition("token=")[2], _HASH)
    begun = await sign_in.begin(connection, sign_in.FIRST, _HASH, timedelta(hours=1), "127.0.0.1", _NAME)
    assert begun is not None  # noqa: S101 - the password was set a moment ago
    return begun.cookie


async def _loaded(options: argparse.Namespace, httpd: tuple[str, int], cookie: str) -> dict[str, float]:
    """The median milliseconds of each page until its first paint."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise ConfigError("no Chromium here: apt-get install chromium")
    url = f"http://{httpd[0]}:{httpd[1]}"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--no-proxy-server"])
        context = await browser.new_context()
        shown = {"name": "pillarbox_session", "value": cookie, "domain": httpd[0], "path": "/console/"}
        await context.add_cookies([shown])  # type: ignore[list-item]
        page = await context.new_page()
        found = {}
        for path in (*_PAGES, *_FILTERS):
            times = [await _paint(page, f"{url}/console/{path}") for _ in range(options.loads + 1)]
            found[path] = median(times[1:])  # the first one warms up
            _progress(f"{path}: {found[path]:.0f} ms")
        await browser.close()
    return found


async def _paint(page: Page, url: str) -> float:
    answer = await page.goto(url, wait_until="commit")
    if answer is None or not answer.ok:
        raise ConfigError(f"{url} answers {answer.status if answer else 'nothing'}")
    milliseconds: float = await page.evaluate(_PAINT)
    return milliseconds


async def _delivered(
    options: argparse.Namespace, connection: database.Connection, httpd: tuple[str, int], cookie: str, viewers: int
) -> float:
    """The 99th percentile of milliseconds from acceptance to result, with so many viewers."""
    async with AsyncExitStack() as stack:
        for _ in range(viewers):
            await _view(stack, httpd, cookie)
        [began] = await database.fetch(connection, "doctor_clock")
        ends, number = monotonic() + options.seconds, 0
        while monotonic() < ends:
            await database.fetch(connection, "bench_web_send", number=number)
            number += 1
            await asyncio.sleep(1 / options.rate)
        async with asyncio.timeout(60):
            while True:
                [row] = await database.fetch(connection, "bench_web_delivered", since=began.at)
                if row.recipients >= number:
                    return float(row.p99)
                await asyncio.sleep(0.2)


async def _view(stack: AsyncExitStack, httpd: tuple[str, int], cookie: str) -> None:
    """Open the stream of the first page, and read it until the end of the block."""
    reader, writer = await asyncio.open_connection(*httpd)
    head = f"GET /console/now/events HTTP/1.1\r\nHost: {httpd[0]}\r\nCookie: pillarbox_session={cookie}\r\n\r\n"
    writer.write(head.encode())
    answer = await reader.readline()
    if b" 200 " not in answer:
        raise ConfigError(f"the stream answers {answer.decode().strip()}")

    async def read() -> None:
        while await reader.read(65_536):
            pass

    task = asyncio.create_task(read())
    stack.callback(task.cancel)
    stack.callback(writer.close)


if __name__ == "__main__":
    sys.exit(main())
