"""`surefoot serve --no-worker` and `surefoot worker`, each with its own login, and a whole report by both."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.estate import Estate
from tests.kit import Process, Site, World, Zygote, until

ROLES = ("admin", "operator", "approver", "manager")


@contextmanager
def api(site: Site, url: str, **env: str) -> Iterator[tuple[Process, httpx.Client]]:
    """`surefoot serve --no-worker` under this login, and a client of it."""
    process = site.worker(command=("serve", "--no-worker", "--port", "0"), DATABASE_URL=url, **env)
    said = process.until_it_says("surefoot serves ")
    assert said.endswith(" without a worker")
    with httpx.Client(base_url=said.split()[2], trust_env=False, timeout=30) as client:
        yield process, client


def first_token(estate: Estate, site: Site) -> dict[str, str]:
    """Made by the owner of the schema; the header that shows it."""
    roles = [word for role in ROLES for word in ("--role", role)]
    made = site.command("tokens", "create", "ada", *roles, DATABASE_URL=estate.url("dba"))
    assert made.returncode == 0, made.stderr
    return {"Authorization": f"Bearer {made.stdout.strip()}"}


def open_again(estate: Estate) -> None:
    """As before the first token, for the tests that come."""
    estate.rows("postgres", "delete from surefoot.api_tokens")
    estate.rows("postgres", "update surefoot.tenants set tokens_since = null")


def asked(client: httpx.Client, method: str, path: str, **given: Any) -> Any:
    answer = client.request(method, path, **given)
    assert answer.status_code < 300, answer.text
    return answer.json()


def report(estate: Estate, people: str, world: World, folder: Path, zygote: Zygote) -> None:
    """A whole monthly report: `people` is the login of the API by some way, the worker is `hands` directly."""
    with Site(estate.url("postgres"), world, folder, zygote) as site:
        worker = site.worker(
            command=("worker", "--health-host", "127.0.0.1", "--health-port", "0"), DATABASE_URL=estate.url("hands")
        )
        probed = worker.until_it_says("works as").rpartition(" ")[2]
        assert httpx.get(f"{probed}/readyz", trust_env=False).json() == {"status": "ready"}
        with api(site, people) as (process, client):
            assert asked(client, "GET", "/readyz") == {"status": "ready"}
            client.headers.update(first_token(estate, site))
            body = {"agent": "monthly_report", "input": {"month": "2013-08"}}
            run_id = asked(client, "POST", "/runs", json=body)["run_id"]

            def state() -> str:
                return asked(client, "GET", f"/runs/{run_id}")["state"]

            until("the run waits", lambda: state() == "waiting")
            with ThreadPoolExecutor(8) as pool:  # more at once than a pooler has sessions
                assert set(pool.map(lambda _: state(), range(40))) == {"waiting"}
            [approval] = asked(client, "GET", f"/runs/{run_id}/approvals")
            decided = {"decision": "approve", "reason": "it is right"}
            asked(client, "POST", f"/approvals/{approval['approval_id']}/decision", json=decided)
            until("the run is completed", lambda: state() == "completed")
            site.until_quiet(run_id)
            token = client.headers["Authorization"].removeprefix("Bearer ")
            made = site.command(
                "tokens", "create", "vic", "--role", "viewer", DATABASE_URL=people, SUREFOOT_TOKEN=token
            )
            assert (made.returncode, made.stdout[:3]) == (0, "sf_"), made.stderr
            process.signal(signal.SIGTERM)
            assert process.until_it_dies() == 0
        assert len(world.publications()) == 1
        assert len(world.publish_requests()) == 1
        assert len(world.mails()) == 1
        [request] = world.publish_requests()
        assert request.pid == worker.pid
