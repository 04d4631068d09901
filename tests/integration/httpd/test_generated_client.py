"""test_generated_client — our description is valid OpenAPI, and programs that are generated from it send mail

Owns: proofs about httpd/app.py (the names of operations) and the forms of httpd/sending/forms.py as a schema has them.
See: tests/fixtures/peers/web/generated_client/use.ts; https://openapi-ts.dev.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import schemathesis

import tests.fixtures.peers.web
from httpd.app import described
from tests.fixtures.peers.web.npm import installed

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api

PROGRAM: Final = Path(tests.fixtures.peers.web.__path__[0]) / "generated_client" / "use.ts"
SAID: Final = """ann@example.net active
202 undefined,422 body.to[0]
undefined not_allowed
"""


def test_the_description_is_valid_by_the_schema_of_openapi() -> None:
    schemathesis.openapi.from_dict(described().openapi()).validate()


def test_each_operation_is_named_by_its_part_and_its_verb() -> None:
    operations = [each["operationId"] for path in described().openapi()["paths"].values() for each in path.values()]
    assert {"messages_send", "messages_list", "queue_list", "queue_hold", "quarantine_list_mail"} <= set(operations)
    assert all(re.fullmatch("[a-z]+_[a-z]+(_[a-z]+)?", name) for name in operations), operations
    assert len(operations) == len(set(operations))


async def test_a_generated_client_compiles_sends_and_reads_refusals(api: Api, tmp_path: Path) -> None:
    folder = await asyncio.to_thread(installed, PROGRAM.with_name("package.json"), "typescript", "TypeScript")
    (tmp_path / "node_modules").symlink_to(folder / "node_modules")
    client = await api.client()
    (tmp_path / "openapi.json").write_text(json.dumps((await client.get("/v1/openapi.json")).json()))
    (tmp_path / "use.ts").write_text(PROGRAM.read_text())
    types = ["openapi.json", "--default-non-nullable=false", "-o", "api.d.ts"]
    await ran(tmp_path, "node_modules/.bin/openapi-typescript", *types)
    form = ["--strict", "--skipLibCheck", "--target", "es2022", "--module", "commonjs", "use.ts"]
    await ran(tmp_path, "node_modules/.bin/tsc", *form)
    key = await api.key("shop", senders=["example.com"])
    assert await ran(tmp_path, "node", "use.js", SERVER=api.url, KEY=key) == SAID
    assert await api.system.value("SELECT count(*) FROM messages") == 2


async def ran(folder: Path, *words: str, **variables: str) -> str:
    """Run a program in this folder; what it prints."""
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        env={"PATH": os.environ["PATH"], **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, faults = await process.communicate()
    assert process.returncode == 0, (said + faults).decode()
    return said.decode()
