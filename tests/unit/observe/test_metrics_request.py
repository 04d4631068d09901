"""test_metrics_request — the head of an HTTP request for metrics, and its faults

See: RFC 9112 sections 2.2, 3, 3.2 and 5; RFC 9110 section 9.
"""

from __future__ import annotations

from http import HTTPStatus

import pytest

from shared.observe.metrics_server import Page, asked, response

HOST = b"Host: localhost:9464\r\n"


@pytest.mark.parametrize(
    ("head", "path"),
    [
        (b"GET /metrics HTTP/1.1\r\n" + HOST, "/metrics"),
        (b"GET /metrics HTTP/1.0\r\n", "/metrics"),
        (b"GET /ready?verbose=1 HTTP/1.1\r\n" + HOST, "/ready"),
        (b"GET http://localhost:9464/metrics HTTP/1.1\r\n" + HOST, "/metrics"),
        (b"GET http://localhost HTTP/1.1\r\n" + HOST, "/"),
        (b"\r\nGET /healthy HTTP/1.1\r\n" + HOST, "/healthy"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X-Odd: \xff\xfe\t!\r\nAccept:\r\n", "/"),
    ],
)
def test_the_path_of_a_request_is_parsed(head: bytes, path: str) -> None:
    assert asked(head + b"\r\n") == path


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET  /metrics HTTP/1.1\r\n" + HOST, HTTPStatus.BAD_REQUEST),
        (b"GET /a b HTTP/1.1\r\n" + HOST, HTTPStatus.BAD_REQUEST),
        (b"GET /\x00 HTTP/1.1\r\n" + HOST, HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\x02\x00\x01\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n" + HOST + HOST, HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X : y\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n folded\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: \x00\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\n" + HOST + b"nothing\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/2.0\r\n" + HOST, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED),
        (b"HEAD / HTTP/1.1\r\n" + HOST, HTTPStatus.METHOD_NOT_ALLOWED),
        (b"POST /metrics HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
    ],
)
def test_a_malformed_request_gets_its_status(head: bytes, status: HTTPStatus) -> None:
    assert asked(head + b"\r\n") is status


def test_an_answer_is_complete_and_the_last() -> None:
    head, _, content = response(Page(b"ready\n")).partition(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    assert first == b"HTTP/1.1 200 OK"
    assert {b"Content-Length: 6", b"Connection: close", b"Cache-Control: no-store"} <= set(fields)
    assert content == b"ready\n"


def test_an_answer_to_head_has_no_content() -> None:
    answer = response(Page(b"no\n", HTTPStatus.METHOD_NOT_ALLOWED), bare=True)
    assert answer.endswith(b"Allow: GET\r\n\r\n")
