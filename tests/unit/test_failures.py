"""Which class an error is, for the libraries that people use: real errors where they are here, shapes elsewhere."""

import errno
import smtplib
import socket
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime
from email.message import Message
from types import SimpleNamespace
from typing import Any

import aiosmtplib
import httpx
import psycopg
import pytest

from transactions import failures
from transactions.failures import Failure, FailureClass

REQUEST = httpx.Request("POST", "http://127.0.0.1:1/publications")


def status(code: int, *, headers: dict[str, str] | None = None, body: str = "") -> httpx.HTTPStatusError:
    response = httpx.Response(code, request=REQUEST, headers=headers, text=body)
    return httpx.HTTPStatusError(str(code), request=REQUEST, response=response)


def shaped(name: str, **fields: Any) -> Exception:
    """An error of a library that is not installed here: its name and its public fields."""
    error = type(name, (Exception,), {})(name)
    for field, value in fields.items():
        setattr(error, field, value)
    return error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def with_state(error: type[psycopg.Error]) -> Exception:
    assert error.sqlstate is not None
    return error("no")


TABLE: list[tuple[Exception, str]] = [
    # Nothing came of it there, and that may pass.
    (ConnectionRefusedError("refused"), "transient"),
    (socket.gaierror("no such host"), "transient"),
    (OSError(errno.EHOSTUNREACH, "no route"), "transient"),
    (httpx.ConnectError("refused"), "transient"),
    (httpx.ConnectTimeout("slow"), "transient"),
    (httpx.PoolTimeout("full"), "transient"),
    (urllib.error.URLError(ConnectionRefusedError("refused")), "transient"),
    (shaped("ConnectionError", args=(shaped("MaxRetryError", reason=shaped("NewConnectionError")),)), "transient"),
    (caused(shaped("APIConnectionError"), httpx.ConnectError("refused")), "transient"),
    (smtplib.SMTPResponseException(451, b"busy"), "transient"),
    (aiosmtplib.SMTPResponseException(421, "busy"), "transient"),
    (aiosmtplib.SMTPConnectError("refused"), "transient"),
    (smtplib.SMTPRecipientsRefused({"a@x": (550, b"no"), "b@x": (451, b"later")}), "transient"),
    (smtplib.SMTPAuthenticationError(454, b"later"), "transient"),
    (with_state(psycopg.errors.SerializationFailure), "transient"),
    (with_state(psycopg.errors.TooManyConnections), "transient"),
    # The other side asks to be left alone for a while.
    (status(429), "rate_limited"),
    (status(503, headers={"retry-after": "7"}), "rate_limited"),
    (shaped("RateLimitError", status_code=429), "rate_limited"),
    # It could be put right by other arguments.
    (status(400), "invalid_input"),
    (status(413), "invalid_input"),
    (status(422), "invalid_input"),
    (shaped("BadRequestError", status_code=400), "invalid_input"),
    (with_state(psycopg.errors.InvalidTextRepresentation), "invalid_input"),
    # It is ours to put right.
    (status(401), "permission"),
    (status(403), "permission"),
    (shaped("AuthenticationError", http_status=401), "permission"),
    (shaped("ClientError", response={"ResponseMetadata": {"HTTPStatusCode": 403}}), "permission"),
    (smtplib.SMTPAuthenticationError(535, b"no"), "permission"),
    (aiosmtplib.SMTPAuthenticationError(535, "no"), "permission"),
    (with_state(psycopg.errors.InsufficientPrivilege), "permission"),
    # No, for good.
    (status(307), "rejected"),
    (status(308), "rejected"),
    (status(402), "rejected"),
    (status(404), "rejected"),
    (status(410), "rejected"),
    (urllib.error.HTTPError("http://h/", 404, "gone", Message(), None), "rejected"),
    (smtplib.SMTPResponseException(550, b"no such mailbox"), "rejected"),
    (smtplib.SMTPRecipientsRefused({"a@x": (550, b"no"), "b@x": (553, b"no")}), "rejected"),
    (aiosmtplib.SMTPRecipientsRefused([aiosmtplib.SMTPRecipientRefused(550, "no", "a@x")]), "rejected"),
    (httpx.UnsupportedProtocol("gopher"), "rejected"),
    (with_state(psycopg.errors.UniqueViolation), "rejected"),
    # It may have happened.
    (status(301), "unknown"),
    (status(303), "unknown"),
    (status(408), "unknown"),
    (status(409), "unknown"),
    (status(425), "unknown"),
    (status(500), "unknown"),
    (status(502), "unknown"),
    (status(503), "unknown"),
    (status(504), "unknown"),
    (httpx.ReadTimeout("slow"), "unknown"),
    (httpx.WriteTimeout("slow"), "unknown"),
    (httpx.ReadError("reset"), "unknown"),
    (httpx.RemoteProtocolError("half an answer"), "unknown"),
    (caused(shaped("APITimeoutError"), httpx.ReadTimeout("slow")), "unknown"),
    (caused(httpx.ReadTimeout("slow"), ConnectionRefusedError("an earlier try")), "unknown"),
    (smtplib.SMTPServerDisconnected("gone"), "unknown"),
    (with_state(psycopg.errors.AdminShutdown), "unknown"),
    (with_state(psycopg.errors.StatementCompletionUnknown), "unknown"),
    (ConnectionResetError("reset"), "unknown"),
    (BrokenPipeError("gone"), "unknown"),
    (TimeoutError("late"), "unknown"),
]
NOBODY_KNOWS: list[Exception] = [
    ValueError("not JSON"),
    KeyError("id"),
    RuntimeError(""),
    OSError("odd"),
    PermissionError("of a file, perhaps after it was sent"),
    ssl.SSLError("x"),
]


@pytest.mark.parametrize(("error", "kind"), TABLE, ids=lambda value: repr(value))
def test_an_error_has_its_class(error: Exception, kind: str) -> None:
    failure = failures.known(error)
    assert failure is not None
    assert failure.kind == kind
    assert failure.reason


@pytest.mark.parametrize("error", NOBODY_KNOWS, ids=lambda error: repr(error))
def test_what_nobody_knows_may_have_happened(error: Exception) -> None:
    assert failures.known(error) is None
    assert failures.of(error).kind == "unknown"


def test_an_error_that_only_came_after_another_is_not_explained_by_it() -> None:
    def tries_twice() -> None:
        try:
            raise ConnectionRefusedError("an earlier try")
        except ConnectionRefusedError:
            raise ValueError("what came then")  # noqa: B904  the context is what is tested

    with pytest.raises(ValueError, match="then") as raised:
        tries_twice()
    assert isinstance(raised.value.__context__, ConnectionRefusedError)
    assert failures.of(raised.value).kind == "unknown"


async def test_a_database_that_nobody_answers_for_was_not_reached() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(psycopg.OperationalError) as raised:
        await psycopg.AsyncConnection.connect(f"postgresql://u@127.0.0.1:{port}/d", connect_timeout=2)
    assert failures.of(raised.value).kind == "transient"
    with pytest.raises(urllib.error.URLError) as away:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2)  # noqa: ASYNC210  refused at once
    assert failures.of(away.value).kind == "transient"


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (400, '{"error": {"type": "idempotency_error"}}', "conflict"),
        (422, '{"title": "Idempotency-Key is already used"}', "conflict"),
        (409, '{"title": "A request is outstanding for this Idempotency-Key"}', "unknown"),
        (409, "the key is of another request (idempotency)", "conflict"),
        (422, '{"title": "the subject is too long"}', "invalid_input"),
        (404, "idempotency", "rejected"),
    ],
)
def test_a_key_that_came_with_another_request_is_a_conflict(code: int, body: str, kind: str) -> None:
    assert failures.of(status(code, body=body)).kind == kind


def test_a_classification_that_raises_leaves_it_to_the_table() -> None:
    def classify(error: Exception) -> FailureClass:
        raise KeyError(error)

    assert failures.of(status(404), classify=classify).kind == "rejected"


def test_a_reason_can_always_be_stored() -> None:
    assert Failure(FailureClass.UNKNOWN, "a\0b" + "x" * 5000).reason == "a\ufffdb" + "x" * 1997


NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        ("Mon, 30 Nov 2026 12:00:30 GMT", 30.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("Mon, 30 Nov 2026 13:00:30 +0100", 30.0),
        ("99999999", failures.RETRY_AFTER_S_MAX),
        ("Mon, 30 Nov 2099 12:00:30 GMT", failures.RETRY_AFTER_S_MAX),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("NaN", None),
        ("Mon, 99 Foo 2026", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert failures.retry_after_s({"Retry-After": value}, now=NOW) == seconds
    assert failures.retry_after_s({"RETRY-AFTER": value}, now=NOW) == seconds


def test_without_a_header_nothing_is_asked_for() -> None:
    assert failures.retry_after_s({}) is None
    assert failures.of(status(429)) == Failure(FailureClass.RATE_LIMITED, "HTTPStatusError: 429")
    assert failures.of(status(429, headers={"Retry-After": "3"})).retry_after_s == 3


def test_an_error_of_any_shape_is_survived() -> None:
    loop = RuntimeError("loop")
    loop.args = (loop,)
    odd = shaped("APIError", response=SimpleNamespace(status_code="teapot", headers=None))
    unread = shaped("HTTPStatusError", response=httpx.Response(500, stream=httpx.ByteStream(b"x")))
    for error in (loop, odd, shaped("X", status=200), shaped("X", status_code=True), unread):
        assert failures.of(error).kind == "unknown"
