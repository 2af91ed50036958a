"""Classes of failure: what is known after an attempt that brought no result, and what may be done next.

One table for effects, reads and deliveries. Libraries are told apart by the shape of their errors, not by imports.
"""

import errno
import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast

from transactions.canonical import storable_reason

_log = logging.getLogger("surefoot.failures")
RETRY_AFTER_S_MAX = 24 * 3600.0
_CHAIN_MAX = 8


class FailureClass(StrEnum):
    """Every class but `unknown` and `conflict` says that the attempt changed nothing on the other side."""

    TRANSIENT = "transient"  # tried again, after a pause that doubles
    RATE_LIMITED = "rate_limited"  # tried again, not before the other side allows it
    INVALID_INPUT = "invalid_input"  # the model is asked to correct its arguments
    PERMISSION = "permission"  # stopped until a person has put it right
    REJECTED = "rejected"  # no for good: a result, which the model is told
    UNKNOWN = "unknown"  # it may have happened: verified before anything is sent again
    CONFLICT = "conflict"  # our key came with another request, or the answer cannot be kept: a person has to look


@dataclass(frozen=True, slots=True)
class Failure:
    """`reason` in words, without secrets; `retry_after_s` as the other side asked for it, in seconds from now."""

    kind: FailureClass
    reason: str
    retry_after_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", storable_reason(self.reason))
        if self.retry_after_s is not None:
            again_s = min(self.retry_after_s, RETRY_AFTER_S_MAX) if self.retry_after_s > 0 else 0.0
            object.__setattr__(self, "retry_after_s", again_s)


Classify = Callable[[Exception], Failure | FailureClass | None]
"""A user's own classification of an error. None, or when it raises: as the table says."""

_HTTP: Mapping[int, FailureClass] = MappingProxyType(
    {
        400: FailureClass.INVALID_INPUT,
        401: FailureClass.PERMISSION,
        403: FailureClass.PERMISSION,
        407: FailureClass.PERMISSION,
        408: FailureClass.UNKNOWN,
        409: FailureClass.UNKNOWN,
        413: FailureClass.INVALID_INPUT,
        414: FailureClass.INVALID_INPUT,
        415: FailureClass.INVALID_INPUT,
        422: FailureClass.INVALID_INPUT,
        425: FailureClass.UNKNOWN,
        429: FailureClass.RATE_LIMITED,
    }
)
_DONE_AND_ELSEWHERE = frozenset({301, 302, 303})  # as many answer once they have done it
_KEY_MAY_BE_REUSED = frozenset({400, 409, 422})
_IDEMPOTENCY = re.compile(r"idempoten", re.IGNORECASE)
_IN_PROGRESS = re.compile(r"in.progress|outstanding|concurrent|being processed|still", re.IGNORECASE)

# Names of errors, as httpx, httpcore, requests, urllib3, aiohttp, smtplib, aiosmtplib and botocore have them.
_BY_NAME: Mapping[str, FailureClass] = MappingProxyType(
    {
        "ConnectError": FailureClass.TRANSIENT,
        "ConnectTimeout": FailureClass.TRANSIENT,
        "PoolTimeout": FailureClass.TRANSIENT,
        "UnsupportedProtocol": FailureClass.REJECTED,
        "LocalProtocolError": FailureClass.REJECTED,
        "InvalidURL": FailureClass.REJECTED,
        "NewConnectionError": FailureClass.TRANSIENT,
        "NameResolutionError": FailureClass.TRANSIENT,
        "ConnectTimeoutError": FailureClass.TRANSIENT,
        "ClientConnectorError": FailureClass.TRANSIENT,
        "EndpointConnectionError": FailureClass.TRANSIENT,
        "SMTPConnectError": FailureClass.TRANSIENT,
        "SMTPConnectTimeoutError": FailureClass.TRANSIENT,
        "SMTPAuthenticationError": FailureClass.PERMISSION,
        "SMTPNotSupported": FailureClass.PERMISSION,
        "SMTPNotSupportedError": FailureClass.PERMISSION,
        "NoCredentialsError": FailureClass.PERMISSION,
        # A connection that ended midway.
        "ReadError": FailureClass.UNKNOWN,
        "WriteError": FailureClass.UNKNOWN,
        "CloseError": FailureClass.UNKNOWN,
        "RemoteProtocolError": FailureClass.UNKNOWN,
        "ProtocolError": FailureClass.UNKNOWN,
        "IncompleteRead": FailureClass.UNKNOWN,
        "ServerDisconnectedError": FailureClass.UNKNOWN,
        "ClientPayloadError": FailureClass.UNKNOWN,
        "SMTPServerDisconnected": FailureClass.UNKNOWN,
    }
)
_NO_ROUTE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH})
_PSYCOPG_NOT_CONNECTED = ("connection failed", "connection timeout")
_BY_SQLSTATE: Mapping[str, FailureClass] = MappingProxyType(
    {
        "08001": FailureClass.TRANSIENT,
        "08004": FailureClass.TRANSIENT,
        "57P03": FailureClass.TRANSIENT,
        "53300": FailureClass.TRANSIENT,
        "42501": FailureClass.PERMISSION,
        "22": FailureClass.INVALID_INPUT,
        "23": FailureClass.REJECTED,
        "28": FailureClass.PERMISSION,
        "3D": FailureClass.PERMISSION,
        "40": FailureClass.TRANSIENT,
        "40003": FailureClass.UNKNOWN,
        "42": FailureClass.REJECTED,
    }
)


def of(error: Exception, *, classify: Classify | None = None) -> Failure:
    """The class of an error; what nobody knows is `unknown`.

    A 400, 409 or 422 that speaks of idempotency is about the key that the attempt carried.
    classify: asked first.
    """
    return known(error, classify=classify) or Failure(FailureClass.UNKNOWN, words(error))


def known(error: Exception, *, classify: Classify | None = None) -> Failure | None:
    """As `of`, by the shape of the outermost error that is known. None: it is none of a connection or a service."""
    said = None if classify is None else _said(classify, error)
    if said is not None:
        return said if isinstance(said, Failure) else Failure(said, words(error))
    try:
        for link in _chain(error):
            if (shape := _shape(link)) is not None:
                kind, again_s = shape
                return Failure(kind, words(error), again_s)
    except Exception as broken:  # somebody's own properties
        _log.warning("%s cannot be looked at: %s", words(error), words(broken))
    return None


def _said(classify: Classify, error: Exception) -> Failure | FailureClass | None:
    try:
        return classify(error)
    except Exception as broken:  # what became of the attempt has to be recorded all the same
        _log.warning("classify raised %s for %s", words(broken), words(error))
        return None


def http(status: int, headers: Mapping[str, str], body: str = "") -> FailureClass:
    """The class of an HTTP answer that is not a success."""
    if status in _KEY_MAY_BE_REUSED and _IDEMPOTENCY.search(body):
        return FailureClass.UNKNOWN if _IN_PROGRESS.search(body) else FailureClass.CONFLICT
    if status == 503 and retry_after_s(headers) is not None:
        return FailureClass.RATE_LIMITED
    if status >= 500 or status in _DONE_AND_ELSEWHERE:
        return FailureClass.UNKNOWN
    return _HTTP.get(status, FailureClass.REJECTED)


def retry_after_s(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """Seconds that `Retry-After` asks for, from a number or an HTTP date; at most a day. None without a valid one."""
    value = next((text for name, text in headers.items() if name.lower() == "retry-after"), "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
        return min(float(value), RETRY_AFTER_S_MAX)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return min(max(0.0, (at - (now or datetime.now(UTC))).total_seconds()), RETRY_AFTER_S_MAX)


def words(error: BaseException) -> str:
    """An error's name and words, as they can be stored."""
    try:
        said = str(error)
    except Exception:  # it is somebody's own
        said = "(it has no words)"
    return storable_reason(f"{type(error).__name__}: {said}".rstrip(": "))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was made from: its cause, a reason, or the error it wraps. Not what it only came after."""
    link: Any = error
    for _ in range(_CHAIN_MAX):
        yield link
        wrapped: list[Any] = [link.__cause__, getattr(link, "reason", None), *getattr(link, "args", ())[:1]]
        link = next((inner for inner in wrapped if isinstance(inner, BaseException)), None)
        if link is None:
            return


def _shape(error: BaseException) -> tuple[FailureClass, float | None] | None:
    if isinstance(error, ConnectionRefusedError | socket.gaierror) or getattr(error, "errno", None) in _NO_ROUTE:
        return FailureClass.TRANSIENT, None
    if (status := _status(error)) is not None:
        headers, body = _answer(error)
        return http(status, headers, body), retry_after_s(headers)
    if isinstance(state := getattr(error, "sqlstate", None), str):
        return _BY_SQLSTATE.get(state) or _BY_SQLSTATE.get(state[:2]) or FailureClass.UNKNOWN, None
    if (kind := _smtp(error) or _BY_NAME.get(type(error).__name__)) is not None:
        return kind, None
    if type(error).__module__.startswith("psycopg") and str(error).startswith(_PSYCOPG_NOT_CONNECTED):
        return FailureClass.TRANSIENT, None
    if isinstance(error, ConnectionError | TimeoutError) or "Timeout" in type(error).__name__:
        return FailureClass.UNKNOWN, None
    return None


def _smtp(error: BaseException) -> FailureClass | None:
    """A mail server that said no has taken nothing: 4xx may pass, 5xx is for good."""
    name = type(error).__name__
    if not name.startswith("SMTP"):
        return None
    codes = [code for code in _smtp_codes(error) if isinstance(code, int)]
    if not codes or min(codes) < 400:
        return None
    if min(codes) < 500:
        return FailureClass.TRANSIENT
    denied = name == "SMTPAuthenticationError" or codes[0] in (530, 535)
    return FailureClass.PERMISSION if denied else FailureClass.REJECTED


def _smtp_codes(error: BaseException) -> Sequence[object]:
    """Of smtplib's errors, of aiosmtplib's, and of every recipient that was refused."""
    refused: Any = getattr(error, "recipients", None)
    if isinstance(refused, Mapping):
        return [answer[0] for answer in cast("Mapping[str, Any]", refused).values()]
    if isinstance(refused, list | tuple):
        return [getattr(each, "code", None) for each in cast("Sequence[Any]", refused)]
    return [getattr(error, "smtp_code", None), getattr(error, "code", None)]


def _status(error: BaseException) -> int | None:
    """The HTTP status an error carries: `.response.status_code`, `.status_code`, `.status`, or urllib's `.code`."""
    response = getattr(error, "response", None)
    found: list[object] = [getattr(response, "status_code", None)]
    if isinstance(response, Mapping):  # botocore
        meta = cast("Mapping[str, Any]", response).get("ResponseMetadata", {})
        found.append(cast("Mapping[str, Any]", meta).get("HTTPStatusCode"))
    found += [getattr(error, name, None) for name in ("status_code", "http_status", "status")]
    if type(error).__name__ == "HTTPError":
        found.append(getattr(error, "code", None))
    return next((code for code in found if isinstance(code, int) and 300 <= code < 600), None)


def _answer(error: BaseException) -> tuple[Mapping[str, str], str]:
    response: Any = getattr(error, "response", None)
    for holder in (response, error):
        headers = getattr(holder, "headers", None)
        if headers is not None and hasattr(headers, "items"):
            break
    else:
        headers = {}
    body: object = getattr(error, "body", None)
    if body is None:
        try:
            body = response.text
        except Exception:  # a body that was not read, or is not text
            body = ""
    return cast("Mapping[str, str]", headers), str(body)[:4000]
