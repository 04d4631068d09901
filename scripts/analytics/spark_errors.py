"""spark_errors — turns Spark's errors into one-line errors of ours

Owns: what is looked for in the text of an error of Spark, of Java or of a Python worker.
Guarantees: an error that our own code raised in a worker keeps its text; a Parquet file that cannot be read is named.
Raises: PillarboxError.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST: Final = 300  # characters of an error's text
# The line of an exception in Python's or Java's stack trace; before Java's there is a colon.
_NAMED: Final = re.compile(r"(?:: )?(?:[\w$]+\.)*[A-Z][\w$]*: \S")
_RAISED: Final = re.compile(r"^(?:scripts|shared)\.[\w.]+\.\w+: (.+)$", re.MULTILINE)
_FILE: Final = re.compile(r"FAILED_READ_FILE.*?(?:file://)?(/\S+?\.parquet|\w+://\S+?\.parquet)", re.DOTALL)


@contextmanager
def understood() -> Iterator[None]:
    """Turn Spark's errors in this block into PillarboxErrors of one line."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise PillarboxError(one_line(error)) from None


def one_line(error: Exception) -> str:
    """What the error says, in one line."""
    said = str(error)
    if raised := _RAISED.search(said):
        return raised[1]
    if file := _FILE.search(said):
        return f"{file[1]}: the file is damaged or missing; nothing was reported; export its day again with --again"
    if "Python worker" in said and (line := next(filter(_NAMED.match, said.splitlines()), None)):
        return f"Spark: {line.removeprefix(': ').strip()[:_LONGEST]}"
    return f"Spark: {first_words(error)}"


def first_words(error: Exception) -> str:
    """The text of a Spark error in one line; for Java's errors the exception, which follows the place of the call."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    thrown = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
    return " ".join(thrown.split())[:_LONGEST]
