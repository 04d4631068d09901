"""test_worker_reads_in_order — a worker's sessions plan for a long queue, whatever statistics say of a short one

Owns: proof that `queued` opens its sessions as sql/README.md, "Claims", wants them. The plans that this makes
    impossible are in tests/integration/claim/test_backlog.py.
See: sql/queries/upkeep/connection.sql.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

#: Keeps what the session that records a try plans with.
_NOTED: Final = """
CREATE TABLE public.plans_with (whole_tables text, bitmaps text, kept text);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.plans_with
    VALUES (current_setting('enable_seqscan'), current_setting('enable_bitmapscan'),
            current_setting('plan_cache_mode'));
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT ON pillarbox.attempts FOR EACH ROW EXECUTE FUNCTION public.note()
"""


async def test_no_session_reads_a_whole_table_or_sorts_a_bitmap(system: System, books: Books) -> None:
    await system.rows(_NOTED)
    smtpd = await system.smtpd()
    await system.worker(books.sink.port)
    await books.submit(smtpd, numbered(5))
    await books.until_arrived(5)
    await system.until_finished()
    assert await system.rows("SELECT DISTINCT whole_tables, bitmaps, kept FROM public.plans_with") == [
        ("off", "off", "force_generic_plan")
    ]
