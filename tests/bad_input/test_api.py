"""The HTTP API: every refusal has its status and one sentence, changes nothing and leaves no traceback in the log."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import Surefoot
from app.web.limits import BODY_BYTES_MAX
from tests.bad_input.sentences import rows
from tests.forked import plain_environment
from tests.kit import Process, Zygote, until

REPORT = {"agent": "monthly_report", "input": {"month": "2013-08"}}
PRINCIPALS = {  # the first token is an admin's
    "ada": ["admin", "approver", "manager"],
    "ivan": ["approver", "intern"],
    "mia": ["operator", "manager"],
    "max": ["approver", "Manager"],
}
JSON = {"Content-Type": "application/json"}
UNSTORABLE = "A text contains a NUL character or half of a surrogate pair, which Postgres cannot store: remove it."


@dataclass(frozen=True, slots=True)
class Served:
    """A served API, a run of it that waits for an approval, and the headers of its principals. The client is Ada's."""

    client: httpx.Client
    database_url: str
    log: Path
    run_id: str
    approval_id: str
    tokens: dict[str, dict[str, str]]

    def refuses(self, status: int, method: str, path: str, **request: Any) -> str:
        """The one sentence of a refusal with this status."""
        answer = self.client.request(method, path, **request)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        assert list(answer.json()) == ["error"]
        return answer.json()["error"]

    def decides(self, status: int, *, who: str = "ada", **decision: object) -> str:
        body = {"decision": "approve", **decision}
        path = f"/approvals/{self.approval_id}/decision"
        return self.refuses(status, "POST", path, json=body, headers=self.tokens[who])


async def principals(url: str) -> dict[str, dict[str, str]]:
    surefoot = Surefoot(url, [])
    tokens: dict[str, str] = {}
    for name, roles in PRINCIPALS.items():
        await surefoot.set_principal(name, roles=roles)
        tokens[name] = await surefoot.create_token(name)
    await surefoot.close()
    return {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}


@pytest.fixture(scope="module")
def served(migrated: str, zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("serve") / "log"
    tokens = asyncio.run(principals(migrated))
    process = Process(
        log,
        ["-m", "app.cli", "serve", "--port", "0"],
        {**plain_environment(), "DATABASE_URL": migrated, "SUREFOOT_QUEUE_POLL_S": "0.1"},
        zygote=zygote,
    )
    try:
        url = process.until_it_says("surefoot serves ").split()[2]
        with httpx.Client(base_url=url, trust_env=False, timeout=30, headers=tokens["ada"]) as client:
            started = client.post("/runs", json=REPORT, headers={"Idempotency-Key": "the-first"})
            assert started.status_code == 202
            run_id = started.json()["run_id"]
            [approval] = until("the run waits for an approval", lambda: client.get("/approvals").json())
            assert approval["run_id"] == run_id
            until("the run waits", lambda: client.get(f"/runs/{run_id}").json()["state"] == "waiting")
            yield Served(client, migrated, log, run_id, approval["approval_id"], tokens)
    finally:
        process.kill()


@pytest.fixture(autouse=True)
def changes_nothing(served: Served) -> Iterator[None]:
    """Refused requests start no run, decide and cancel nothing; and nothing unexpected is in the server's log."""
    look = (
        "select (select count(*) from surefoot.runs) as runs, (select count(*) from surefoot.events) as events, "
        "(select state from surefoot.runs where run_id = %s) as state, "
        "(select state from surefoot.approvals where approval_id = %s) as approval"
    )
    before = rows(served.database_url, look, served.run_id, served.approval_id)
    yield
    assert rows(served.database_url, look, served.run_id, served.approval_id) == before
    assert "Traceback" not in served.log.read_text()


# Starting.


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "body: Field required."),
        (b"{", "body"),
        (b'{"agent": "monthly_report"', "body"),
        (b"null", "body"),
        (b"[1]", "body"),
        (b'"monthly_report"', "body"),
        (b'{"agent": "monthly_report"}', "body.input: Field required."),
        (b'{"agent": 7, "input": {}}', "body.agent: Input should be a valid string."),
        (b'{"agent": "monthly_report", "input": {}, "when": "now"}', "body.when: Extra inputs are not permitted."),
    ],
)
def test_a_body_that_is_not_right_is_422(served: Served, body: bytes, words: str) -> None:
    said = served.refuses(422, "POST", "/runs", content=body, headers=JSON)
    assert said.startswith("The request is not right: ")
    assert words in said
    assert said.endswith(". Correct it and send it again.")


@pytest.mark.parametrize("body", [b'{"agent": "\xff"}', b"[" * 100_000], ids=["not UTF-8", "too deep"])
def test_a_body_that_cannot_be_read_at_all_is_400(served: Served, body: bytes) -> None:
    assert "body" in served.refuses(400, "POST", "/runs", content=body, headers=JSON)


@pytest.mark.parametrize(
    ("input_", "words"),
    [
        ("2013-08", "input: Input should be a valid dictionary"),
        ({"month": "2013-13"}, "'2013-13' is not a month; write it as YYYY-MM, for example 2013-08."),
        ({"month": "2014-08"}, "has no data for 2014-08: choose one of 2013-01,"),
        ({"month": "2013-08", "notes": "a\0b"}, "The input contains a NUL character"),
        ({"month": "2013-08", "data": "a\0b"}, "cannot be read: embedded null byte; check the path"),
        ({"month": "2013-08", "data": "/nowhere.csv"}, "nowhere.csv cannot be read: no such file or directory"),
    ],
)  # fmt: skip
def test_an_input_that_cannot_succeed_is_422(served: Served, input_: object, words: str) -> None:
    assert words in served.refuses(422, "POST", "/runs", json={**REPORT, "input": input_})


def test_half_of_a_surrogate_pair_is_422(served: Served) -> None:
    body = b'{"agent": "monthly_report", "input": {"month": "2013-08", "notes": "\\ud800"}}'
    assert "unicode" in served.refuses(422, "POST", "/runs", content=body, headers=JSON)


@pytest.mark.parametrize("agent", ["nobody", "", "monthly_report\0", "x" * 10_000])
def test_an_unknown_agent_is_404(served: Served, agent: str) -> None:
    said = served.refuses(404, "POST", "/runs", json={**REPORT, "agent": agent})
    assert said.endswith("choose one of: monthly_report, ticket_triage.")


def test_an_input_over_its_limit_is_422_and_a_request_over_its_own_413(served: Served) -> None:
    deep = {"month": "2013-08", "notes": "n" * 1_100_000}
    assert "notes: String should have at most 4096 characters" in served.refuses(
        422, "POST", "/runs", json={**REPORT, "input": deep}
    )
    assert str(BODY_BYTES_MAX) in served.refuses(
        413, "POST", "/runs", content=b"x" * (BODY_BYTES_MAX + 1), headers=JSON
    )

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 65_536

    assert str(BODY_BYTES_MAX) in served.refuses(413, "POST", "/runs", content=endless(), headers=JSON)


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_an_idempotency_key_that_is_too_long_or_empty_is_422(served: Served, key: str) -> None:
    said = served.refuses(422, "POST", "/runs", json=REPORT, headers={"Idempotency-Key": key})
    assert said == "An idempotency key has 1 to 255 characters: send a shorter one."


def test_a_key_with_another_input_is_409_and_with_the_same_it_is_the_same_run(served: Served) -> None:
    key = {"Idempotency-Key": "the-first"}
    other = {**REPORT, "input": {"month": "2013-07"}}
    assert served.run_id in served.refuses(409, "POST", "/runs", json=other, headers=key)
    again = served.client.post("/runs", json=REPORT, headers=key)
    assert (again.status_code, again.json()["run_id"]) == (202, served.run_id)


# Looking.


@pytest.mark.parametrize("path", ["/runs/nope", "/runs/nope/events", "/runs/%F0%9F%92%A9", f"/runs/{'x' * 5000}"])
def test_an_unknown_run_is_404(served: Served, path: str) -> None:
    assert served.refuses(404, "GET", path).endswith(": see `surefoot runs list`.")


@pytest.mark.parametrize("path", ["/runs/a%00b", "/runs/a%00b/events"])
def test_an_id_that_no_row_can_have_is_422(served: Served, path: str) -> None:
    assert served.refuses(422, "GET", path) == UNSTORABLE


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "state=over", "limit="])
def test_a_question_that_is_not_right_is_422(served: Served, query: str) -> None:
    assert served.refuses(422, "GET", f"/runs?{query}").startswith("The request is not right: query.")


@pytest.mark.parametrize("after", ["-1", "x", "1e9"])
def test_a_place_in_the_events_that_cannot_be_is_422(served: Served, after: str) -> None:
    said = served.refuses(422, "GET", f"/runs/{served.run_id}/events?after={after}")
    assert said.startswith("The request is not right: query.after: ")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nope", 404), ("PUT", "/runs", 405)])
def test_a_route_that_is_none_is_told_in_the_same_form(served: Served, method: str, path: str, status: int) -> None:
    assert path in served.refuses(status, method, path)


# Deciding and cancelling.


@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("ivan", "publish_report needs the approval of role:manager; ivan has: approver, intern."),
        ("mia", "This needs the role approver, and mia has: manager, operator. Ask an admin for it."),
        ("max", "max has: Manager, approver."),
    ],
)
def test_the_wrong_role_is_403(served: Served, who: str, words: str) -> None:
    assert words in served.decides(403, who=who)


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ({"decision": "maybe"}, "Input should be 'approve' or 'reject'"),
        ({"by": "ada"}, "body.by: Extra inputs are not permitted"),
        ({"role": "manager"}, "body.role: Extra inputs are not permitted"),
        ({"reason": "r" * 4001}, "The reason has 4001 characters; the limit is 4000: shorten it."),
        ({"reason": "r\0"}, "contains a NUL character"),
        ({"expires": 7}, "Extra inputs are not permitted"),
        ({"reason": "r" * 1_000_000}, "The reason has 1000000 characters; the limit is 4000: shorten it."),
        ({"changes": {"version": 2}}, "publish_report cannot be changed so: give the whole text of the report"),
        ({"changes": " "}, "publish_report cannot be changed so: give the whole text of the report"),
        ({"changes": None}, "null changes nothing: leave it out to approve it as it is"),
        ({"changes": "a text", "decision": "reject"}, "A rejection changes nothing: approve with the changes"),
        ({"decision": "reject", "reason": 7}, "body.reason"),
    ],
)
def test_a_decision_that_is_not_right_is_422(served: Served, decision: dict[str, object], words: str) -> None:
    assert words in served.decides(422, **decision)


def test_half_of_a_surrogate_pair_in_a_decision_is_422(served: Served) -> None:
    body = '{"decision": "approve", "reason": "\\ud800"}'
    path = f"/approvals/{served.approval_id}/decision"
    assert served.refuses(422, "POST", path, content=body.encode(), headers=JSON) == UNSTORABLE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ('{"amount": NaN}', "The changes is not JSON (Out of range float values are not JSON compliant)"),
        ("1e400", "The changes is not JSON"),
        ('"\\ud800"', "The changes contains a NUL character or half of a surrogate pair"),
        ("[" * 400 + "]" * 400, "The request is not right: body.changes"),
        ("[" * 100_000 + "]" * 100_000, "There was an error parsing the body"),
    ],
    ids=["NaN", "too large", "half a pair", "deep", "far too deep"],
)
def test_changes_that_are_no_json_decide_nothing(served: Served, changes: str, words: str) -> None:
    body = f'{{"decision": "approve", "changes": {changes}}}'
    path = f"/approvals/{served.approval_id}/decision"
    answer = served.client.post(path, content=body.encode(), headers=JSON)
    assert answer.status_code in (400, 422)
    assert words in answer.json()["error"]


@pytest.mark.parametrize(("approval", "status"), [("nope", 404), ("a/b/c", 404), ("a%00b", 422)])
def test_an_approval_that_is_none_is_refused(served: Served, approval: str, status: int) -> None:
    served.refuses(status, "POST", f"/approvals/{approval}/decision", json={"decision": "approve"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"reason": "r\0"}, "contains a NUL character"),
        ({"reason": "r" * 4001}, "The reason has 4001 characters; the limit is 4000: shorten it."),
        ({"by": "ada"}, "body.by: Extra inputs are not permitted"),
        ({"reason": 7}, "body.reason: Input should be a valid string"),
        ([], "The request is not right: body"),
    ],
)
def test_a_cancellation_that_is_not_right_is_422(served: Served, body: object, words: str) -> None:
    assert words in served.refuses(422, "POST", f"/runs/{served.run_id}/cancel", json=body)


def test_cancelling_what_is_not_there_is_404(served: Served) -> None:
    served.refuses(404, "POST", "/runs/nope/cancel")


class TestAfterAnEnd:
    """Last, because it decides: a decision or a cancellation that comes after is 409, and the first one stands."""

    @pytest.fixture(autouse=True)
    def changes_nothing(self) -> None:
        """It does."""

    def test_a_second_decision_is_409_and_the_first_one_stands(self, served: Served) -> None:
        path = f"/approvals/{served.approval_id}/decision"
        decided = served.client.post(path, json={"decision": "reject", "reason": "no"})
        assert (decided.status_code, decided.json()["run_id"]) == (200, served.run_id)
        for again in ("reject", "approve"):
            said = served.decides(409, decision=again)
            assert "already rejected by ada: one decision counts." in said or "nothing left to decide" in said
        until("the run is over", lambda: served.client.get(f"/runs/{served.run_id}").json()["ended_at"])
        assert rows(
            served.database_url,
            "select state, decided_by from surefoot.approvals where approval_id = %s",
            served.approval_id,
        ) == [{"state": "rejected", "decided_by": "ada"}]

    def test_cancelling_what_is_over_is_409(self, served: Served) -> None:
        until("the run is over", lambda: served.client.get(f"/runs/{served.run_id}").json()["ended_at"])
        said = served.refuses(409, "POST", f"/runs/{served.run_id}/cancel")
        assert said == f"Run {served.run_id} is completed and cannot be cancelled: it is over."
        assert "Traceback" not in served.log.read_text()
