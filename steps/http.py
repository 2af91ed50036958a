"""Call an HTTP API from a tool: one request and one answer, bounded in time and size, its errors told apart by class.

What is secret is sent and never shown: it is in no error, result, receipt or log of ours.
"""

import asyncio
import base64
import json as jsonlib
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from pydantic import JsonValue

from steps.kinds import Action
from transactions import canonical_json
from transactions.redaction import Redactor

TIMEOUT_S = 20.0
RESPONSE_BYTES_MAX = 1024 * 1024
_SHOWN_CHARS = 500
_IN_A_HEADER = "!#$&'*+-.^_`|~/:"  # as it is: nothing else of an id could be refused or taken for something else
_HEADER = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_NOTHING: Mapping[str, str] = MappingProxyType({})
_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # of Linux


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of 2xx. `body`: parsed JSON, or the text of something else, or None when there was none."""

    status: int
    body: JsonValue


class ApiError(Exception):
    """The API answered, and not with success. `transactions.failures` reads its class from these fields."""

    def __init__(self, words: str, status_code: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__(words)
        self.status_code, self.headers, self.body = status_code, headers, body


class ApiUnanswered(Exception):
    """No answer that could be read. Its cause says whether the request may have arrived."""


class HttpApi:
    """An HTTP API as tools call it, made in a deps factory:

        api = HttpApi("https://tickets.example/v2", secrets={"Authorization": f"Bearer {token}"})
        answer = await api.call("POST", "/tickets", action=action, json={"subject": subject})

    secrets: headers that are sent and hidden in whatever the API says. timeout_s: of a whole call, from connecting to
    the last byte; on Linux, nothing of it arrives later than one and a half times that, which an effect's `attempt_s`
    should allow for. response_bytes_max: a longer answer counts as none. key_header: carries `action.id`. Redirects are
    answers, not followed; nothing is tried again here, for an effect's retries have one owner.
    Raises ValueError for a URL that is not http(s), or has a user, a query or a fragment in it, and for such headers.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] = _NOTHING,
        secrets: Mapping[str, str] = _NOTHING,
        timeout_s: float = TIMEOUT_S,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        key_header: str = "Idempotency-Key",
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"HttpApi({base_url!r}): write http(s)://host[:port][/path].")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("HttpApi: leave user, password and query out of the URL, and give `secrets=` as headers.")
        self.base_url = base_url.rstrip("/")
        self._headers = {**headers, **secrets}
        self._timeout_s, self._bytes_max, self._key_header = timeout_s, response_bytes_max, key_header
        if wrong := [name for name, value in self._headers.items() if not _HEADER.fullmatch(value)]:
            raise ValueError(f"HttpApi: the header {wrong[0]} is no plain ASCII text: strip it.")
        # The value, and what follows a scheme such as Bearer; of Basic also what is encoded there.
        tokens = [value.rpartition(" ")[2] for value in secrets.values()]
        self._hide = Redactor([*secrets.values(), *tokens, *filter(None, map(_password, secrets.values()))])

    def __repr__(self) -> str:
        return f"HttpApi({self.base_url!r})"

    async def call(
        self,
        method: str,
        path: str,
        *,
        action: Action[Any] | None = None,
        json: JsonValue = None,
        params: Mapping[str, str | int] | None = None,
    ) -> Answer:
        """One request. Its body is canonical JSON, so that the same call has the same bytes at every attempt.

        path: begins with `/`. action: its id is sent as the idempotency key, percent-encoded. params: of the query,
        which logs may show. Raises ApiError for an answer that is not 2xx, ApiUnanswered, ValueError (the path).
        """
        if not path.startswith("/"):
            raise ValueError(f"HttpApi.call({path!r}): write a path that begins with /.")
        headers = {**self._headers}
        if action is not None:
            headers[self._key_header] = quote(action.id, safe=_IN_A_HEADER)
        content = None if json is None else canonical_json(json).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        request = httpx.Request(method, self.base_url + path, params=params, headers=headers, content=content)
        about = f"{method} {self.base_url}{path}"
        try:
            async with asyncio.timeout(self._timeout_s):
                response, text = await self._exchange(request)
        except (httpx.HTTPError, TimeoutError) as error:
            said = f"no answer within {self._timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
            raise ApiUnanswered(self._hide(f"{about}: {said or type(error).__name__}")) from error
        if not response.is_success:
            shown = " ".join(text.split())[:_SHOWN_CHARS]
            words = f"{about}: {response.status_code} {shown}".rstrip()
            headers = {name: self._hide(value) for name, value in response.headers.items()}
            raise ApiError(words, response.status_code, headers, text[:4000])
        return Answer(response.status_code, _parsed(text))

    async def _exchange(self, request: httpx.Request) -> tuple[httpx.Response, str]:
        limit = httpx.Timeout(self._timeout_s, connect=self._timeout_s / 2)  # so that one is told from the other
        async with httpx.AsyncClient(transport=self._transport(request.url), timeout=limit) as client:
            response = await client.send(request, stream=True)
            try:
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > self._bytes_max:
                        raise httpx.ReadError(f"{response.status_code} with over {self._bytes_max} bytes")
            finally:
                await response.aclose()
        return response, self._hide(content.decode(response.charset_encoding or "utf-8", errors="replace"))

    def _transport(self, url: httpx.URL) -> httpx.AsyncHTTPTransport:
        """By the environment's proxies, as httpx finds them; and a request that no network takes is not kept for long.

        The kernel goes on sending what a process has handed to it, even one that has ended meanwhile: into a network
        that was cut it would arrive minutes later, when others believe that it never did.
        """
        proxies = getproxies()
        proxy = None if proxy_bypass(url.host) else proxies.get(url.scheme) or proxies.get("all")
        options: list[tuple[int, int, int]] = []
        if _USER_TIMEOUT is not None:
            options.append((socket.IPPROTO_TCP, _USER_TIMEOUT, max(1, int(self._timeout_s * 1000 / 2))))
        tls = self._tls if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which is made at once
        return httpx.AsyncHTTPTransport(verify=tls, proxy=proxy, socket_options=options)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return httpx.create_ssl_context()


def _password(value: str) -> str | None:
    scheme, _, token = value.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(token, validate=True).decode().partition(":")[2]
    except ValueError:
        return None


def _parsed(text: str) -> JsonValue:
    if not text:
        return None
    try:
        return jsonlib.loads(text)
    except ValueError:
        return text
