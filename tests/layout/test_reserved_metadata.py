"""test_reserved_metadata — the reserved keys of queue.metadata are those that sql/README.md explains

Owns: the comparison of the table, of shared.mail.message.RESERVED and of the keys the code and the SQL really use.
"""

from __future__ import annotations

import re
from pathlib import Path

from shared.mail.message import RESERVED
from tests.layout.sources import ROOT, python_files, read

_ROW = re.compile(r"^\| `(_[a-z]+)` \|", re.MULTILINE)
_SQL_KEY = re.compile(r"metadata *(?:->>|->|-|\|\|)[^;\n]*?['\"](_[a-z]+)['\"]")


def test_the_table_and_the_code_agree() -> None:
    assert set(_ROW.findall(read(Path("sql/README.md")))) == RESERVED


def test_every_key_that_sql_reads_or_writes_is_in_the_table() -> None:
    used = set()
    for path in (ROOT / "sql").rglob("*.sql"):
        used |= set(_SQL_KEY.findall(path.read_text(encoding="utf-8")))
    assert {"_partid", "_quarantineid", "_requeued"} <= used
    assert used <= RESERVED


def test_every_key_is_written_by_some_code() -> None:
    texts = "\n".join(read(path) for path in python_files("smtpd", "shared", "queued", "operate", "httpd", "scripts"))
    texts += "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "sql").rglob("*.sql"))
    assert [key for key in RESERVED if texts.count(f'"{key}"') + texts.count(f"'{key}'") < 2] == []
