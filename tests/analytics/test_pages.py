"""test_pages — the pages about history work as written: generate, export, search, clean up, erase, report and stream

Guarantees: the commands run in the order of the pages, on a smaller history than the page's million.
See: tests/integration/pages for all other pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.analytics.spark import quick_commands
from tests.fixtures.pages.walking import Reader, Walk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.postgres import ServerUnderTest

#: An attempt for the stream, which starts ten minutes back.
_JUST_NOW = """
INSERT INTO attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid, recipientdomain, size,
                      outcome, scope, duration)
VALUES (now(), 1, gen_random_uuid(), 1, 1, 'w', 'default', 'example.com', 1, 'delivered', 'recipient', '1 s')
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def java() -> None:
    """Some Java that Spark can use."""
    from scripts.analytics.session import java_home  # noqa: PLC0415
    from shared.errors import PillarboxError  # noqa: PLC0415

    try:
        java_home()
    except PillarboxError as missing:
        pytest.skip(str(missing))


@pytest.mark.usefixtures("java")
def test_history_is_exported_cleaned_up_and_generated(
    history_database: str, server: ServerUnderTest, tmp_path: Path
) -> None:
    with server.fresh_database() as trial:
        reader = Reader(values={"postgresql:///trial": trial, "--attempts 1m": "--attempts 2000"})
        with Walk(tmp_path, history_database, reader) as walk:
            walk.environment |= quick_commands(tmp_path / "spark")
            walk.page("how-to/observe/export-history.md")
            exported = walk.output["pillarbox analytics export --lake /srv/lake"]
            assert "attempts" in exported
            assert list((walk.root / "srv" / "lake").rglob("*.parquet"))
            walk.page("how-to/review/erase-a-person.md")


@pytest.mark.usefixtures("java")
def test_history_is_reported(history_database: str, exported_lake: Path, tmp_path: Path) -> None:
    stream = "pillarbox analytics stream    "  # it begins ten minutes back, and the page's reports may take as long
    reader = Reader(
        until={stream: "SELECT count(*) > 0 FROM pillarbox.report_minutes"},
        meanwhile={stream: lambda walk: walk.query(_JUST_NOW)},
    )
    with Walk(tmp_path / "reader", history_database, reader) as walk:
        walk.environment |= quick_commands(tmp_path / "spark")
        (walk.folder / "var").mkdir()
        (walk.folder / "var" / "lake").symlink_to(exported_lake)
        walk.page("how-to/observe/report.md")
        assert (walk.folder / "report.html").stat().st_size > 1000
        walk.type("pillarbox analytics report")  # as the page for who comes from Postfix has it
