"""The webhook consumer: an entry goes as one signed POST to a URL, as the Standard Webhooks say.

The id and the body are the same at every attempt, so the receiver can drop a repeat. Nothing but the very address that
was checked is connected to, and no redirect is followed: a URL cannot be used to reach what only this machine can.
"""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import cast
from urllib.parse import parse_qsl

import httpx
from pydantic import JsonValue

from outbox.addresses import is_host, refusal
from outbox.outcomes import Delivered, Outcome, Undelivered
from outbox.signatures import keys_of, sign, webhook_id_of
from transactions import InvalidInput, canonical_json, failpoint, failures
from transactions.failures import FailureClass
from transactions.outbox import Delivery
from transactions.redaction import Redactor

_ADDRESSES_MAX = 4
# Read past the limit, so that a secret that stands across it is found whole and taken out before the rest is cut.
_SPARE_BYTES = 1024
_EXCERPT_CHARS_MAX = 300
_HEADER_CHARS_MAX = 200
_HEADERS_KEPT = ("content-type", "request-id", "x-request-id")
_TOKEN_CHARS_MIN = 8

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host and port, as text, the best one first. Raises OSError."""


@dataclass(frozen=True, slots=True)
class _Post:
    """What is sent, wherever it goes."""

    headers: Mapping[str, str]
    body: bytes
    redacted: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Answer:
    """`text` is redacted and no longer than a receipt may be; None when it is compressed. `whole`: nothing is cut."""

    status: int
    headers: Mapping[str, str]
    text: str | None
    whole: bool


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses that this machine finds for a name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class WebhookConsumer:
    """Posts each entry to one URL: `{"type": topic, "timestamp": when it was put, "data": payload}`.

    secret: `whsec_...`, or several of them while they are rotated: each signs. allow_private: addresses of private
    networks and this machine, and `http://`; without it only `https://` to public addresses. timeout_s: of one attempt,
    from the look-up of the name to the end of the answer. response_bytes_max: of the answer that is kept as receipt.

    Raises InvalidInput for a URL or a secret that cannot work.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | Sequence[str],
        allow_private: bool = False,
        timeout_s: float = 20.0,
        response_bytes_max: int = 16 * 1024,
        resolve: Resolve = resolve,
    ) -> None:
        self._url = _checked(url, allow_private=allow_private)
        self._host = self._url.raw_host.decode()
        self._keys = keys_of(secret)
        secrets = secret.split() if isinstance(secret, str) else secret
        query = self._url.query.decode()
        tokens = [query, *(value for _, value in parse_qsl(query))]
        self._secrets = [each.removeprefix("whsec_").rstrip("=") for each in secrets]
        self._secrets += [token for token in tokens if len(token) >= _TOKEN_CHARS_MIN]
        self._allow_private = allow_private
        self._timeout_s = timeout_s
        self._response_bytes_max = response_bytes_max
        self._resolve = resolve
        self._tls = httpx.create_ssl_context()  # of SSL_CERT_FILE, where that is set

    async def take(self, delivery: Delivery) -> Outcome:
        post = self._signed(delivery)
        ends_at = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(ends_at):
                addresses = await self._resolve(self._host, self._port)
            if (why := refusal(addresses, allow_private=self._allow_private)) is not None:
                advice = "correct the URL and redrive it, or allow private addresses (allow_private) if it is meant"
                return Undelivered(f"nothing was sent to {self._host}: {why}; {advice}", final=True)
            failpoint("webhook.before_send")
            answer = await self._post(addresses, post, ends_at)
            failpoint("webhook.after_send")
        except TimeoutError:
            return Undelivered(f"no answer of {self._host} within {self._timeout_s:g} s")
        except (httpx.HTTPError, OSError) as error:
            failure = failures.of(error)
            return Undelivered(post.redacted(f"no answer of {self._host} ({failure.kind}): {failure.reason}"))
        return self._outcome(answer, post.headers["webhook-id"])

    @property
    def _port(self) -> int:
        return self._url.port or (443 if self._url.scheme == "https" else 80)

    def _signed(self, delivery: Delivery) -> _Post:
        """The same body and id at every attempt; the time, and with it the signature, is that of the attempt."""
        at = delivery.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        body = canonical_json({"type": delivery.topic, "timestamp": at, "data": delivery.payload}).encode()
        webhook_id, timestamp = webhook_id_of(delivery.entry_id), int(time.time())
        signature = sign(self._keys, webhook_id=webhook_id, timestamp=timestamp, body=body)
        headers = {
            "Host": self._url.netloc.decode(),
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "User-Agent": "surefoot",
            "Idempotency-Key": webhook_id,
            "webhook-id": webhook_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature,
        }
        signatures = [each.removeprefix("v1,").rstrip("=") for each in signature.split()]
        return _Post(headers, body, Redactor([*self._secrets, *signatures]))

    async def _post(self, addresses: Sequence[str], post: _Post, ends_at: float) -> _Answer:
        """To the first of the addresses that takes the connection: nothing was sent to one that does not."""
        *others, last = addresses[:_ADDRESSES_MAX]
        for address in others:
            try:
                return await self._post_to(address, post, ends_at)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._post_to(last, post, ends_at)

    async def _post_to(self, address: str, post: _Post, ends_at: float) -> _Answer:
        """Straight through a transport: no client that follows redirects, heeds proxies or logs URLs.

        The URL names the address, so that no name is resolved again; certificate and `Host` are the name's.
        """
        limits_s = {"connect": self._timeout_s / 2, "read": self._timeout_s, "write": self._timeout_s}
        request = httpx.Request(
            "POST",
            self._url.copy_with(host=address),
            headers=post.headers,
            content=post.body,
            extensions={"timeout": limits_s, "sni_hostname": self._host.rstrip(".")},
        )
        async with httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False) as transport:
            async with asyncio.timeout_at(ends_at):
                response = await transport.handle_async_request(request)
            try:
                content, whole = await self._read(response, ends_at)
            finally:
                await response.aclose()
        text = None
        if response.headers.get("content-encoding", "identity") == "identity":
            kept = post.redacted(content.decode(errors="replace")).encode()
            whole = whole and len(kept) <= self._response_bytes_max
            text = kept[: self._response_bytes_max].decode(errors="ignore")
        headers = {name: post.redacted(value) for name, value in response.headers.items()}
        return _Answer(response.status_code, headers, text, whole)

    async def _read(self, response: httpx.Response, ends_at: float) -> tuple[bytes, bool]:
        """As much of the body as is kept, and whether that is all. However this ends, the answer is its status."""
        content = bytearray()
        try:
            async with asyncio.timeout_at(ends_at):
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > self._response_bytes_max + _SPARE_BYTES:
                        break
                else:
                    return bytes(content), len(content) <= self._response_bytes_max
        except (TimeoutError, httpx.HTTPError):
            pass
        return bytes(content[: self._response_bytes_max + _SPARE_BYTES]), False

    def _outcome(self, answer: _Answer, webhook_id: str) -> Outcome:
        if 200 <= answer.status < 300:
            kept = {name: answer.headers[name][:_HEADER_CHARS_MAX] for name in _HEADERS_KEPT if name in answer.headers}
            receipt: dict[str, JsonValue] = {
                "status": answer.status,
                "webhook_id": webhook_id,
                "headers": dict[str, JsonValue](kept),
                "body": _value(answer),
            }
            return Delivered(receipt if answer.whole else {**receipt, "truncated": True})
        kind = failures.http(answer.status, answer.headers, answer.text or "")
        why = f"{self._host} answered {answer.status} ({kind})"
        if excerpt := (answer.text or "").strip()[:_EXCERPT_CHARS_MAX]:
            why += f": {excerpt}"
        if (advice := _for_good(answer.status, kind)) is not None:
            return Undelivered(f"{why}; {advice}", final=True)
        return Undelivered(why, again_s=failures.retry_after_s(answer.headers) or 0.0)


def _for_good(status: int, kind: FailureClass) -> str | None:
    """What to do, when the same request would be answered so every time.

    As the Standard Webhooks say, every other failure is tried again: a receiver that is deployed, or whose secret is
    rotated, answers 400, 401, 403 or 404 for a while.
    """
    if 300 <= status < 400:
        return "a redirect is never followed: give the URL that it goes to, and redrive it"
    if status == 410:
        return "the receiver wants no more of them: discard it, or correct the URL and redrive it"
    if kind is FailureClass.CONFLICT:
        return "the receiver knows this id with another request: look there, then redrive or discard it"
    if kind is FailureClass.INVALID_INPUT and status != 400:
        return "the receiver cannot take this entry: correct the receiver and redrive it, or discard it"
    return None


def _value(answer: _Answer) -> JsonValue:
    """The body as JSON, else as text."""
    try:
        return cast("JsonValue", json.loads(answer.text or ""))
    except (ValueError, RecursionError):
        return answer.text


def _checked(url: str, *, allow_private: bool) -> httpx.URL:
    """The URL without its fragment. Raises InvalidInput, without what may be secret in it."""
    write = "write https://host/path."
    try:
        parsed = httpx.URL(url).copy_with(fragment=None)
        host = parsed.raw_host.decode()
    except (httpx.InvalidURL, UnicodeError):
        raise InvalidInput(f"The webhook's URL is not one: {write}") from None
    if parsed.scheme not in ("https", "http") or not host:
        raise InvalidInput(f"The webhook's URL is not one of the web: {write}")
    if parsed.scheme == "http" and not allow_private:
        raise InvalidInput(f"The webhook to {host} would go in the clear: write https://, or allow_private for a test.")
    if parsed.userinfo:
        raise InvalidInput(f"The webhook's URL to {host} has a user or password in it, which is not sent: {write}")
    if not is_host(host):
        raise InvalidInput(f"{host[:100]!r} is neither a name nor an address as it is usually written: {write}")
    return parsed
