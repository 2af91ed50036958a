"""The API and a worker in processes of their own, each with its own login, together do what one process does."""

from pathlib import Path

from tests.distribution.apart import api, asked, open_again, report
from tests.estate import Estate
from tests.kit import Site, World, Zygote, until


def test_an_api_and_a_worker_apart_make_a_whole_report(
    each: Estate, world: World, tmp_path: Path, zygote: Zygote
) -> None:
    try:
        report(each, each.url("people"), world, tmp_path, zygote)
    finally:
        open_again(each)


def test_what_the_api_takes_waits_until_a_worker_comes(
    new: Estate, world: World, tmp_path: Path, zygote: Zygote
) -> None:
    with Site(new.url("postgres"), world, tmp_path, zygote) as site:
        site.working(DATABASE_URL=new.url("hands")).kill()  # so that the agents are known
        with api(site, new.url("people")) as (_, client):
            body = {"agent": "monthly_report", "input": {"month": "2013-08"}}
            run_id = asked(client, "POST", "/runs", json=body, headers={"Idempotency-Key": "aug"})["run_id"]
            assert asked(client, "POST", "/runs", json=body, headers={"Idempotency-Key": "aug"})["run_id"] == run_id
            asked(client, "POST", f"/runs/{run_id}/cancel", json={"reason": "not yet"})
            second = asked(client, "POST", "/runs", json=body)["run_id"]
            assert asked(client, "GET", f"/runs/{second}")["state"] == "queued"
            site.working(DATABASE_URL=new.url("hands"))
            until("the run waits", lambda: asked(client, "GET", f"/runs/{second}")["state"] == "waiting")
            assert asked(client, "GET", f"/runs/{run_id}")["state"] == "cancelled"
            asked(client, "POST", f"/runs/{second}/cancel", json={"reason": "enough"})
