"""Accounts with sign-up, activation and recovery, whose mail the database itself asks for: Starlette and psycopg.

    pillarbox accounts install --schema accounts
    export DATABASE_URI=postgresql://shop@db.example/shop ACCOUNTS_KEY=/etc/pillarbox/accounts.key
    uvicorn --app-dir docs/examples/accounts app:app

`pillarbox up` runs beside it, with a collect.yaml whose key is the same file, and whose links lead here:
`activate: "http://127.0.0.1:8000/activate?token={token}"`, `recover: "http://127.0.0.1:8000/recover?token={token}"`.

The application sends no mail and waits for none. It inserts an account, and a trigger makes the token in the same
transaction; it calls request_recovery, which answers alike for addresses without an account.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from base64 import urlsafe_b64decode
from collections import defaultdict
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import psycopg
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shared.security.account_token import ACTIVATE, SECRET_OCTETS, read_key, verify

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

DATABASE = os.environ["DATABASE_URI"]
KEYS = {"2026-11": read_key(Path(os.environ["ACCOUNTS_KEY"]).read_text().strip())}
MEMBERS = "CREATE TABLE IF NOT EXISTS members (account bigint PRIMARY KEY, password bytea NOT NULL)"


@asynccontextmanager
async def transaction() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A connection in a transaction, which COMMIT ends; large applications take it from a pool."""
    options = "-c search_path=accounts,public"
    async with await psycopg.AsyncConnection.connect(DATABASE, options=options) as connection:
        yield connection


@asynccontextmanager
async def prepared(_: Starlette) -> AsyncIterator[None]:
    """Our own table, beside those of the accounts: passwords are the application's."""
    async with transaction() as connection:
        await connection.execute(MEMBERS)
    yield


async def home(_: Request) -> HTMLResponse:
    """The forms."""
    return page(
        "Welcome",
        form("/sign-up", "Sign up", email="email", login="text", password="password"),
        form("/log-in", "Log in", login="text", password="password"),
        form("/forgotten", "Forgot your password?", email="email"),
    )


async def sign_up(request: Request) -> HTMLResponse:
    """Insert the account; its activation token, and so its mail, are in the same COMMIT."""
    given = await fields(request)
    try:
        async with transaction() as connection:
            made = await connection.execute(
                "INSERT INTO accounts (email, login) VALUES (%s, %s) RETURNING id", (given["email"], given["login"])
            )
            [account] = await made.fetchone() or (0,)
            await connection.execute("INSERT INTO members VALUES (%s, %s)", (account, hashed(given["password"])))
    except psycopg.errors.UniqueViolation as taken:
        if "login" in str(taken.diag.constraint_name):
            return page("Please choose another login", status=409)
        # The address is taken; the page must not reveal that.
    except psycopg.errors.CheckViolation as refused:
        return page("That does not work", f"<p>{escape(str(refused.diag.message_primary))}</p>", status=422)
    return page("Look into your mail", "<p>Its link activates your account.</p>")


async def activation(request: Request) -> HTMLResponse:
    """Ask first: programs that look through mail follow links, too."""
    return page("Activate your account", form("/activate", "Activate", token=request.query_params.get("token", "")))


async def activate(request: Request) -> HTMLResponse:
    """Verify the signature without the database, then consume the token: once, and in time."""
    given = await fields(request)
    verified = verify(KEYS, ACTIVATE, given["token"])
    account = None
    if verified is not None:
        account = await one("SELECT consume_token('activation', %s)", verified.secret)
    if account is None:
        return page("This link is used or has expired", status=410)
    return page("Your account is active")


async def forgotten(request: Request) -> HTMLResponse:
    """Ask for recovery; the answer is the same for everybody."""
    given = await fields(request)
    await one("SELECT request_recovery(%s)", given["email"])
    return page("Look into your mail", "<p>If the address has an account, it got a link and a code.</p>")


async def recovery(request: Request) -> HTMLResponse:
    """Ask for the code of the mail and the new password."""
    token = request.query_params.get("token", "")
    asked = form("/recover", "Change password", token=token, code="text", password="password")
    return page("Choose a new password", asked)


async def recover(request: Request) -> HTMLResponse:
    """Consume the token and change the password, or neither. The database compares the code: it counts wrong ones."""
    given = await fields(request)
    secret = secret_of(given["token"])
    async with transaction() as connection:
        asked = await connection.execute("SELECT consume_token('password_recovery', %s, %s)", (secret, given["code"]))
        [account] = await asked.fetchone() or (None,)
        await connection.execute(
            "UPDATE members SET password = %s WHERE account = %s", (hashed(given["password"]), account)
        )
    if account is None:
        return page("The code is wrong, or the link is used or has expired", status=410)
    return page("Your password is changed")


async def log_in(request: Request) -> HTMLResponse:
    """Only active accounts may; the password is compared in constant time."""
    given = await fields(request)
    kept = await one(
        "SELECT password FROM members JOIN accounts a ON a.id = account WHERE a.login = %s AND a.status = 'active'",
        given["login"],
    )
    salt = bytes(kept[:16]) if kept else bytes(16)
    if not hmac.compare_digest(hashed(given["password"], salt), bytes(kept or b"")):
        return page("Wrong login or password, or not active yet", status=403)
    return page(f"Hello {escape(str(given['login']))}")


async def fields(request: Request) -> dict[str, str]:
    """The fields of a form; a missing one is empty."""
    sent = (await request.body()).decode(errors="replace")
    return defaultdict(str, parse_qsl(sent, max_num_fields=10))


async def one(statement: str, *values: object) -> Any:
    """The one value of a statement; None without a row."""
    async with transaction() as connection:
        row = await (await connection.execute(statement.encode(), values)).fetchone()
        return row[0] if row else None


def hashed(password: str, salt: bytes | None = None) -> bytes:
    """The password as it is kept: salt and hash."""
    salt = salt or secrets.token_bytes(16)
    return salt + hashlib.scrypt(password.encode(), salt=salt, n=1 << 14, r=8, p=1)


def secret_of(token: str) -> bytes:
    """The secret in a link, its signature not checked; empty if the link has none."""
    try:
        return urlsafe_b64decode(token.rpartition(".")[2] + "==")[:SECRET_OCTETS]
    except ValueError:
        return b""


def form(action: str, name: str, **fields: str) -> str:
    """A form. A field is of a kind, or, if it is the token, its own value and hidden."""
    inputs = "".join(
        f'<input type="hidden" name="token" value="{escape(kind)}">'
        if field == "token"
        else f'<label>{field} <input name="{field}" type="{kind}" required></label> '
        for field, kind in fields.items()
    )
    return f'<form method="post" action="{action}">{inputs}<button>{name}</button></form>'


def page(title: str, *parts: str, status: int = 200) -> HTMLResponse:
    """A page; its address, which has the token, is sent to no other site."""
    text = f"<!DOCTYPE html><html lang=en><title>{title}</title><h1>{title}</h1>{''.join(parts)}"
    return HTMLResponse(text, status, {"Referrer-Policy": "no-referrer"})


app = Starlette(
    routes=[
        Route("/", home),
        Route("/sign-up", sign_up, methods=["POST"]),
        Route("/activate", activation),
        Route("/activate", activate, methods=["POST"]),
        Route("/forgotten", forgotten, methods=["POST"]),
        Route("/recover", recovery),
        Route("/recover", recover, methods=["POST"]),
        Route("/log-in", log_in, methods=["POST"]),
    ],
    lifespan=prepared,
)
