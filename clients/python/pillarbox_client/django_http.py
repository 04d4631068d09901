"""django_http — an e-mail backend that sends by the HTTP API

    MAILERS = {"default": {"BACKEND": "pillarbox_client.django_http.HttpBackend", "OPTIONS": {"url": "…", "key": "…"}}}

Owns: the backend. What it takes of django-anymail's attributes is in pillarbox_client/django.py; of esp_extra
    idempotency_key and priority.
Raises: as there, and http.Problem where the server refuses; nothing where `fail_silently` is true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from httpx import TransportError

from pillarbox_client.django import Backend, UnsupportedFeature
from pillarbox_client.http import Client, Problem

if TYPE_CHECKING:
    from pillarbox_client.message import Message


class HttpBackend(Backend):
    """Sends each message by the HTTP API."""

    refusals = (ValueError, Problem, TransportError)

    def __init__(self, *, url: str, key: str, timeout: float = 30, **other: Any) -> None:
        super().__init__(**other)
        self._client = Client(url, key, timeout=timeout)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def queued(self, message: Message, options: dict[str, Any]) -> str:
        """Send the message; its id."""
        if stray := sorted(options.keys() - {"idempotency_key"}):
            raise UnsupportedFeature(f"esp_extra has {stray[0]!r}; allowed by HTTP: idempotency_key, priority")
        return str(self._client.send(message, **options))
