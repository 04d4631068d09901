"""test_errors — every failure is reported in one line to its reader

Owns: proofs about the texts of shared/errors.py, and about each place where exceptions are shown.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex

import psycopg
import pytest

from shared.errors import ConfigError, cause, error_text, in_words
from shared.observe.events import quote
from shared.postgres import database

SILENT = [
    TimeoutError(),
    ConnectionResetError(),
    asyncio.CancelledError(),
    ValueError(" \n"),
    psycopg.OperationalError(),
]


@pytest.mark.parametrize("error", SILENT, ids=repr)
def test_an_error_without_text_is_named_by_its_type(error: BaseException) -> None:
    said = "timed out" if isinstance(error, TimeoutError) else type(error).__name__
    assert in_words(error) == cause(error) == database.reason(error) == said
    assert str(database.unavailable(error)) == f"PostgreSQL is unavailable: {said}"
    assert shlex.split(quote(error)) == [said], "as the log has it"


def test_the_text_of_an_error_is_one_line() -> None:
    assert in_words(psycopg.errors.DiskFull("no space\n  DETAIL: none")) == "no space DETAIL: none"
    assert quote(ValueError("two\nlines")) == '"two lines"'


def test_the_cause_of_a_system_error_omits_errno_and_path() -> None:
    refused = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/nowhere")
    assert cause(refused) == "No such file or directory"
    assert in_words(refused) == "[Errno 2] No such file or directory: '/nowhere'"


def test_a_refused_connection_has_the_same_cause_in_every_event_loop() -> None:
    of_asyncio = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 25)")
    assert cause(of_asyncio) == cause(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))


def test_an_unexpected_error_is_reported_with_its_type() -> None:
    assert error_text(ConfigError("queued.yaml:3: no")) == "queued.yaml:3: no"
    assert error_text(KeyError("no")) == "KeyError('no')"
