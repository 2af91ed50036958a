"""Client of the publishing service: one request to publish, one to look a publication up by its reference.

The service knows no idempotency keys: every `publish` that reaches it makes one more publication. So nothing here is
sent twice by itself, and errors of the transport come through as httpx raises them: `httpx.ConnectError` and
`httpx.ConnectTimeout` mean that nothing was sent; after any other `httpx.TransportError`, a timeout included, the
outcome of a `publish` is unknown until `find` has told. An answer of 4xx or 5xx is `httpx.HTTPStatusError`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address

import httpx
from pydantic import BaseModel, ConfigDict, TypeAdapter

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0


class Publication(BaseModel):
    """One publication as the service tells of it. `id` is the service's own; `sha256` is what was claimed for `body`.

    `published_at` is the service's time, seconds since 1970.
    """

    model_config = ConfigDict(frozen=True)

    id: int
    reference: str
    title: str
    sha256: str
    published_at: float


_PUBLICATIONS = TypeAdapter(list[Publication])


@dataclass(frozen=True, slots=True)
class PublishingService:
    """The service at `url`, such as `http://127.0.0.1:8080`. Holds no connection: each call opens its own."""

    url: str
    answer_timeout_s: float = ANSWER_TIMEOUT_S

    async def publish(self, reference: str, title: str, body: str, sha256: str) -> Publication:
        """Makes a new publication and returns it. `sha256` is of `body` in UTF-8, 64 hex digits."""
        async with self._client() as client:
            answer = await client.post(
                "/publications", json={"reference": reference, "title": title, "body": body, "sha256": sha256}
            )
            answer.raise_for_status()
            return Publication.model_validate_json(answer.content)

    async def find(self, reference: str) -> Publication | None:
        """The oldest publication with this reference, or None while there is none. Changes nothing."""
        async with self._client() as client:
            answer = await client.get("/publications", params={"reference": reference})
            answer.raise_for_status()
            found = _PUBLICATIONS.validate_json(answer.content)
            return min(found, key=lambda publication: publication.id, default=None)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(self.answer_timeout_s, connect=CONNECT_TIMEOUT_S),
            headers={"User-Agent": f"monthly-report/1 (pid {os.getpid()})"},
            trust_env=not _is_loopback(httpx.URL(self.url).host),  # no proxy can reach this machine's own loopback
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
