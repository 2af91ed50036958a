"""Where the API listens, and whose requests it answers, before there is a token and after."""

from pathlib import Path

import httpx
import pytest
from sqlalchemy import make_url

from app import Surefoot
from tests.bad_input.sentences import sentence
from tests.forked import plain_environment
from tests.forked import surefoot as command
from tests.kit import Process, Zygote
from tests.people import bearer


def test_beyond_loopback_it_serves_once_there_are_tokens(
    closed: tuple[str, str], open_: str, zygote: Zygote, tmp_path: Path
) -> None:
    said = sentence(command("serve", "--host", "0.0.0.0", "--port", "0", env={"DATABASE_URL": open_}))
    assert said == (
        "0.0.0.0 is not a loopback address, and there are no tokens yet: run `surefoot tokens create` first."
    )
    url, token = closed
    env = {**plain_environment(), "DATABASE_URL": url}
    words = ["-m", "app.cli", "serve", "--host", "0.0.0.0", "--port", "0"]
    process = Process(tmp_path / "log", words, env, zygote=zygote)
    try:
        port = make_url(process.until_it_says("surefoot serves ").split()[2]).port
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert client.get("/runs").status_code == 401
            assert client.get("/runs", headers=bearer(token)).json() == []
            assert client.get("/runs", headers=bearer("sf_" + token)).status_code == 401
    finally:
        process.kill()
    assert token.split("_", 2)[2] not in process.said()


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1", 200), ("127.9.9.9", 200), ("::1", 200), ("192.0.2.7", 403), ("::ffff:192.0.2.7", 403), ("", 403)],
)
async def test_without_tokens_only_this_machine_is_answered(open_: str, host: str, status: int) -> None:
    surefoot = Surefoot(open_, [])
    transport = httpx.ASGITransport(surefoot.web, client=(host, 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
        answer = await client.get("/runs")
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["error"] == (
                "There are no tokens yet, so only this machine is served: run `surefoot tokens create` on it."
            )
        forwarded = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"}
        assert (await client.get("/runs", headers=forwarded)).status_code == status
    await surefoot.close()


@pytest.mark.parametrize(
    ("name", "status"),
    [("localhost", 200), ("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("rebound.example", 403), ("127.0.0.1.x", 403)],
)
async def test_without_tokens_it_is_not_asked_under_a_name_of_somebody_else(open_: str, name: str, status: int) -> None:
    """A page from elsewhere may have its own name lead here: the browser then says that name."""
    surefoot = Surefoot(open_, [])
    transport = httpx.ASGITransport(surefoot.web, client=("127.0.0.1", 1234))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{name}") as client:
        assert (await client.post("/runs/none/cancel")).status_code == (404 if status == 200 else status)
    await surefoot.close()
