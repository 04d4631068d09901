"""test_own_login — the console where httpd has a login of its own, with the roles that the docs grant it

Owns: the proof that every page works there, but those of keys and principals, which say that they may not be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import PASSWORD, set_password
from tests.fixtures.database.logins import name_of
from tests.fixtures.database.operating import write_config
from tests.fixtures.database.reviewing import hold

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

READ = ("now", "queue", "queue?by=state", "quarantine", "held", "blocked", "suspends", "suppressions", "schedules")
MORE = ("deadletters", "webhooks", "audit", "account")


async def test_every_page_but_keys_and_people_works_with_the_login_that_the_docs_give_httpd(
    system: System, factory: Factory, logins: Logins
) -> None:
    [held] = hold(factory, "spam")
    waiting = factory.row()
    uri = logins.uri("agent")
    factory.sql(
        "GRANT pillarbox_smtpd, pillarbox_application, pillarbox_reviewer, pillarbox_maintainer TO " + name_of(uri)
    )
    write_config(system.folder, uri)
    async with Api(system, await system.httpd(environment={"database": {"uri": uri}})) as api:
        await set_password(api, "ada", "admin")
        client = await api.client()
        answer = await client.post("/console/sign-in", data={"name": "ada", "password": PASSWORD})
        assert answer.status_code == 303
        for path in (*READ, *MORE, f"queue/{waiting}", f"held/{held}", f"act?verb=hold&id={waiting}"):
            page = await client.get(f"/console/{path}")
            assert page.status_code == 200, (path, page.text)
            assert "permission denied" not in page.text, path
        for path in ("keys", "people"):
            page = await client.get(f"/console/{path}")
            assert (page.status_code, "permission denied" in page.text) == (403, True), path
