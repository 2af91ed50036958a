"""`HttpApi`: what is sent, what is answered, which class an error is, and that what is secret is shown nowhere."""

import asyncio
import base64
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import unquote

import pytest

from steps import Action, Answer, ApiError, ApiUnanswered, HttpApi
from transactions import ActionId, FailureClass, Run, RunId, Tenant, failures

SECRET = "tok_5d41402abc4b2a76"
ACTION = ActionId("run/1/0:open_ticket")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def action(id: ActionId = ACTION) -> Action[None]:
    async def query(sql: str, /, **parameters: object) -> list[dict[str, object]]:
        raise AssertionError(sql)

    run = Run(RunId("run"), Tenant("default"), "agent", {}, "nobody", query)
    return Action(None, id, 1, 1, run)


@dataclass(slots=True)
class Desk:
    """One HTTP server that answers every request with the same bytes and keeps what came."""

    answer: bytes = b""
    endless: bool = False
    came: list[bytes] = field(default_factory=list[bytes])
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length")), 0
        )
        self.came.append(head + await reader.readexactly(length))
        writer.write(self.answer)
        try:
            while self.endless:
                writer.write(b"x" * 1000)
                await writer.drain()
                await asyncio.sleep(0.001)
            await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    def says(self, status: str, body: str = "", *headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}", "Connection: close", *headers]
        self.answer = ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@pytest.fixture
async def the_desk() -> AsyncIterator[Desk]:
    desk = Desk()
    server = await asyncio.start_server(desk.serve, "127.0.0.1", 0)
    async with server:
        desk.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield desk


def api(desk: Desk, **changes: object) -> HttpApi:
    return HttpApi(f"{desk.url}/v2/", secrets={"Authorization": f"Bearer {SECRET}"}, **changes)  # pyright: ignore[reportArgumentType]


async def test_a_call_carries_the_key_and_the_same_bytes_each_time(the_desk: Desk) -> None:
    the_desk.says("201 Created", '{"number": 7}')
    for body in ({"b": 1, "a": 2}, {"a": 2, "b": 1}):
        answer = await api(the_desk).call("POST", "/tickets", action=action(), json=body, params={"dry": 0})
        assert answer == Answer(201, {"number": 7})
    first, second = the_desk.came
    assert first == second
    head, _, body = first.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v2/tickets?dry=0 HTTP/1.1\r\n")
    assert f"idempotency-key: {ACTION}".encode() in head.lower().replace(ACTION.lower().encode(), ACTION.encode())
    assert f"Bearer {SECRET}".encode() in head
    assert json.loads(body) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("body", "parsed"), [("", None), ("null", None), ("[1]", [1]), ("ok", "ok"), ("\u00fc", "\u00fc")]
)
async def test_an_answer_is_json_or_text_or_nothing(the_desk: Desk, body: str, parsed: object) -> None:
    the_desk.says("200 OK", body)
    assert (await api(the_desk).call("GET", "/x")).body == parsed
    assert b"idempotency-key" not in the_desk.came[0].lower()


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "again_s"),
    [
        ("400 Bad Request", (), "no subject", FailureClass.INVALID_INPUT, None),
        ("401 Unauthorized", (), "", FailureClass.PERMISSION, None),
        ("404 Not Found", (), "", FailureClass.REJECTED, None),
        ("302 Found", ("Location: http://169.254.169.254/",), "", FailureClass.UNKNOWN, None),
        ("307 Temporary Redirect", ("Location: http://169.254.169.254/",), "", FailureClass.REJECTED, None),
        ("429 Too Many Requests", ("Retry-After: 9",), "", FailureClass.RATE_LIMITED, 9.0),
        ("503 Service Unavailable", ("Retry-After: 9",), "", FailureClass.RATE_LIMITED, 9.0),
        ("500 Internal Server Error", (), "oops", FailureClass.UNKNOWN, None),
        ("422 Unprocessable", (), '{"title": "Idempotency-Key is already used"}', FailureClass.CONFLICT, None),
    ],
)
async def test_an_answer_that_is_no_success_has_its_class(
    the_desk: Desk, status: str, headers: tuple[str, ...], body: str, kind: str, again_s: float | None
) -> None:
    the_desk.says(status, body, *headers)
    with pytest.raises(ApiError) as raised:
        await api(the_desk).call("POST", "/tickets", json={})
    failure = failures.of(raised.value)
    assert (failure.kind, failure.retry_after_s) == (kind, again_s)
    assert f"/v2/tickets: {status[:3]} {body}".rstrip() in failure.reason
    assert len(the_desk.came) == 1


async def test_what_is_secret_is_shown_nowhere(the_desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"you sent": f"Bearer {SECRET}", "or": SECRET})
    the_desk.says("200 OK", echo)
    called = api(the_desk)
    answer = await called.call("GET", "/x")
    assert answer.status == 200
    assert SECRET not in str(answer.body)
    the_desk.says("403 Forbidden", echo)
    with pytest.raises(ApiError) as refused:
        await called.call("GET", "/x")
    the_desk.answer = b""
    with pytest.raises(ApiUnanswered) as unanswered:
        await called.call("GET", "/x")
    shown = [repr(called), str(answer), str(refused.value), refused.value.body, str(unanswered.value)]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("hpack", "asyncio"))]
    assert SECRET in the_desk.came[0].decode()
    assert not [text for text in [*shown, *ours] if SECRET in text]


async def test_an_answer_that_is_too_long_or_never_ends_is_unknown(the_desk: Desk) -> None:
    the_desk.says("200 OK", "x" * 2000)
    with pytest.raises(ApiUnanswered, match="over 1000 bytes") as long:
        await api(the_desk, response_bytes_max=1000).call("POST", "/x")
    the_desk.answer, the_desk.endless = b"HTTP/1.1 200 OK\r\n\r\n", True
    with pytest.raises(ApiUnanswered, match=r"no answer within 0\.3 s") as endless:
        await api(the_desk, timeout_s=0.3, response_bytes_max=10**9).call("POST", "/x")
    for raised in (long, endless):
        assert failures.of(raised.value).kind is FailureClass.UNKNOWN


async def test_nobody_there_is_not_unknown() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    for base in (url, "http://no-such-host.invalid"):
        with pytest.raises(ApiUnanswered) as raised:
            await HttpApi(base).call("POST", "/x", json={})
        assert failures.of(raised.value).kind is FailureClass.TRANSIENT


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://host/", "write http"),
        ("tickets", "write http"),
        ("http://eve:pw@host/", "leave user, password and query out"),
        ("http://host/?key=1", "leave user, password and query out"),
    ],
)
def test_a_url_that_cannot_be_is_refused_without_showing_a_password(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        HttpApi(url)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize("id", ["default/publish:Z\u00fcrich", "default/publish:a ", "default/publish:a%20b"])
async def test_any_id_can_be_a_key_and_no_two_are_the_same_one(the_desk: Desk, id: str) -> None:
    the_desk.says("200 OK")
    await api(the_desk).call("POST", "/x", action=action(ActionId(id)))
    sent = next(line for line in the_desk.came[0].decode().splitlines() if line.lower().startswith("idempotency-key"))
    assert unquote(sent.partition(": ")[2]) == id


@pytest.mark.parametrize("path", ["", "x", ".evil.example/x", "@evil.example/x"])
async def test_a_path_leads_to_no_other_host(the_desk: Desk, path: str) -> None:
    with pytest.raises(ValueError, match="begins with /"):
        await api(the_desk).call("GET", path)
    assert the_desk.came == []


@pytest.mark.parametrize("value", ["tok_1\n", " tok_1", "t\u00f6k", ""])
def test_a_secret_that_cannot_be_sent_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(ValueError, match="the header X-Key is no plain") as raised:
        HttpApi("http://127.0.0.1", secrets={"X-Key": value})
    assert not value.strip() or value.strip() not in str(raised.value)


async def test_a_password_that_comes_back_in_the_clear_is_hidden(the_desk: Desk) -> None:
    the_desk.says("200 OK", '{"password": "swordfish-7", "again": "swordfish\\u002d7"}')
    basic = base64.b64encode(b"eve:swordfish-7").decode()
    answer = await HttpApi(the_desk.url, secrets={"Authorization": f"Basic {basic}"}).call("GET", "/x")
    assert "swordfish" not in str(answer.body)
