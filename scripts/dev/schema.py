"""schema — writes the JSON Schemas that editors use to check our YAML

Owns: config/*.schema.json, which are generated and never edited.
Guarantees: without `--check` the files match the models afterwards; with it nothing is written.
Raises: nothing; exit status 1 and one line for each file that is out of date.
See: https://github.com/redhat-developer/yaml-language-server, for the first line of the YAML files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shared.config.json_schema import SCHEMAS, schema_text

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the schema files; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.dev.schema", description="Write the JSON Schemas of our YAML."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    parser.add_argument(
        "--config", type=Path, default=Path("config"), metavar="DIR", help="folder of the files (default: config)"
    )
    options = parser.parse_args(arguments)
    if not options.config.is_dir():
        print(f"{options.config} is not a folder; run from the checkout or give --config DIR", file=sys.stderr)
        return 1
    stale = [name for name in SCHEMAS if not _is_current(options.config / name)]
    for name in stale:
        file = options.config / name
        if options.check:
            print(f"{file} is out of date; run python -m scripts.dev.schema", file=sys.stderr)
        else:
            file.write_text(schema_text(SCHEMAS[name]), encoding="utf-8")
            print(f"{file}: written")
    return 1 if options.check and stale else 0


def _is_current(file: Path) -> bool:
    try:
        return file.read_text(encoding="utf-8") == schema_text(SCHEMAS[file.name])
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
