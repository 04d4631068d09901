"""test_blocks — a page is divided into commands, files and output

See: tests/fixtures/pages/blocks.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.pages.blocks import blocks

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """\
# A page

In `queued.yaml`:

    rules:
      - id: a

      - id: b

then

    pillarbox one
    pillarbox two \\
        --three

1. in a list

       pillarbox four |
         cat

   goes on
       here, a sentence.

```console
$ pillarbox five
what it prints
```

    policy: {}

    $ pillarbox six
    prints

    select 1;

    waiting: for a host
"""


def test_every_block_is_found_in_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    found = blocks(page)
    assert [(b.line, b.language) for b in found] == [
        *(
            (5, "yaml"),
            (12, "sh"),
            (18, "sh"),
            (25, "console"),
            (29, "yaml"),
            (31, "console"),
            (34, "sql"),
            (36, "text"),
        ),
    ]
    assert "queued.yaml" in found[0].before
    assert found[0].text == "rules:\n  - id: a\n\n  - id: b"
    assert found[1].commands() == ["pillarbox one", "pillarbox two \\\n    --three"]
    assert found[2].commands() == ["pillarbox four |\n  cat"]
    assert found[3].commands() == ["pillarbox five"]
