"""sources — the files that the layout tests check

Owns: finding the repository's own files: those that git tracks or would track; without git, all not ignored.
Guarantees: files deleted from the work tree but still in git's index are left out; the order is stable.
"""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

# Where our packages' code lives; tests and the root conftest.py are apart from it.
PACKAGES: Final = ("smtpd", "queued", "collect", "shared", "operate", "httpd", "scripts", "sql")

_IGNORED: Final = frozenset({".git", ".venv", ".tools", "var", "build", "dist", "__pycache__"})


@cache
def tracked() -> tuple[Path, ...]:
    """Every file of the repository, relative to its root."""
    # Git refuses a clone of another owner (a container, CI) unless the command line names it safe.
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        names = [Path(name) for name in listing.stdout.split("\0") if name]
    else:
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        names = [name for name in names if _IGNORED.isdisjoint(name.parts)]
    return tuple(sorted({name for name in names if (ROOT / name).is_file()}))


def python_files(*folders: str) -> list[Path]:
    """The tracked .py files below these folders of the root; all of them when no folder is named."""
    return [path for path in tracked() if path.suffix == ".py" and (not folders or path.parts[0] in folders)]


def read(path: Path) -> str:
    """The text of a tracked file."""
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a tracked .py file."""
    return ast.parse(read(path), filename=str(path))
