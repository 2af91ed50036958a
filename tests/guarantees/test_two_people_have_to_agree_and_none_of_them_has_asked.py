"""Where two people have to agree, one decides nothing, however often; whoever started the run counts for none."""

import asyncio

import pytest

from app import Surefoot
from tests.agents.scripted import AGENTS
from tests.kit import acting
from tests.stage import Stage
from transactions import deciding

TEXT = {"text": "a"}


def test_one_who_agrees_twice_is_one(stage: Stage) -> None:
    stage.working()
    run_id = asked(stage)
    [approval] = stage.approvals(run_id)
    stage.says("bob", "approve", approval["approval_id"])
    with pytest.raises(Exception, match=r"bob has agreed .+ before, and 2 different people have to: ask another one"):
        stage.says("bob", "approve", approval["approval_id"])
    assert (stage.state(run_id), stage.outside.sent) == ("waiting", [])
    stage.says("cleo", "approve", approval["approval_id"])
    stage.until_state(run_id, "completed")
    assert len(stage.outside.sent) == 1


def test_whoever_started_the_run_does_not_count(stage: Stage) -> None:
    stage.working()
    run_id = asked(stage)
    [approval] = stage.approvals(run_id)
    with pytest.raises(Exception, match="ada has started this run, and somebody else has to decide"):
        stage.says("ada", "approve", approval["approval_id"])
    assert stage.rows("select * from surefoot.approval_decisions") == []


def test_one_of_two_may_refuse(stage: Stage) -> None:
    stage.working()
    run_id = asked(stage)
    [approval] = stage.approvals(run_id)
    stage.says("bob", "approve", approval["approval_id"])
    stage.says("cleo", "reject", approval["approval_id"], reason="not now")
    stage.until_state(run_id, "completed")
    assert stage.outside.sent == []
    assert stage.told(run_id) == [["twice_gated_send", "denied", "cleo refused it: not now"]]


def test_one_who_agreed_may_think_again_and_is_shown_to_have(stage: Stage) -> None:
    process, client = stage.serve()
    run_id = asked(stage)
    [approval] = stage.approvals(run_id)
    stage.says("bob", "approve", approval["approval_id"])
    stage.says("bob", "reject", approval["approval_id"], reason="on second thought")
    shown = client.get(f"/approvals/{approval['approval_id']}").json()["decisions"]
    assert [(said["decision"], said["decided_by"], said["reason"]) for said in shown] == [
        ("approve", "bob", None),
        ("reject", "bob", "on second thought"),
    ]
    assert process.exit_code() is None


def test_one_who_loses_the_right_after_both_agreed_makes_it_be_asked_anew(stage: Stage) -> None:
    worker = stage.working()
    run_id = asked(stage)
    [approval] = stage.approvals(run_id)
    worker.kill()
    for name in ("bob", "cleo"):
        stage.says(name, "approve", approval["approval_id"])
    stage.rows("update surefoot.principals set disabled_at = clock_timestamp() where name = 'bob'")
    stage.working()
    stage.until_state(run_id, "waiting")
    assert stage.outside.sent == []
    first, second = stage.approvals(run_id)
    assert (first["state"], second["difference"]) == ("superseded", {"approved_by": [["bob"], None]})


def test_ten_at_once_are_one_decision(stage: Stage) -> None:
    stage.working()
    run_id = stage.script([("gated_send", TEXT)])
    stage.until_state(run_id, "waiting")
    [approval] = stage.approvals(run_id)
    outcomes = ten_at_once(stage, approval["approval_id"])
    assert sorted(outcomes) == ["Conflict"] * 9 + ["approved"]
    stage.until_state(run_id, "completed")
    stage.until_quiet(run_id)
    assert len(stage.outside.sent) == 1
    assert len(stage.rows("select * from surefoot.approval_decisions")) == 1


def test_control_without_the_look_under_the_lock_they_are_ten(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.working()
    run_id = stage.script([("gated_send", TEXT)])
    stage.until_state(run_id, "waiting")
    [approval] = stage.approvals(run_id)
    loaded = deciding._APPROVALS  # pyright: ignore[reportPrivateUsage]
    lock = loaded["lock"].text.replace("select a.*,", "select a.*, 'pending' as state,", 1)
    decide = loaded["decide_if_pending"].text.replace("and state = 'pending'", "")
    assert lock != loaded["lock"].text
    spoilt = {"lock": type(loaded["lock"])(lock), "decide_if_pending": type(loaded["lock"])(decide)}
    monkeypatch.setattr(deciding, "_APPROVALS", {**loaded, **spoilt})
    assert ten_at_once(stage, approval["approval_id"]).count("approved") > 1


def asked(stage: Stage) -> str:
    """A run that ada has started."""

    async def start() -> str:
        surefoot = Surefoot(stage.database_url, AGENTS)
        ada = await acting(surefoot, "ada", "operator", "approver", "manager")
        run_id = await ada.start("scripted", {"turns": [[("twice_gated_send", TEXT)]]})
        await surefoot.close()
        return run_id

    run_id = asyncio.run(start())
    stage.until_state(run_id, "waiting")
    return run_id


def ten_at_once(stage: Stage, approval_id: str) -> list[str]:
    """What ten managers are told who approve it at the same moment."""

    async def all_of_them() -> list[str]:
        surefoot = Surefoot(stage.database_url, [])
        managers = [await acting(surefoot, f"manager{n}", "approver", "manager") for n in range(10)]
        said = await asyncio.gather(*(who.decide(approval_id, "approve") for who in managers), return_exceptions=True)
        await surefoot.close()
        return [type(each).__name__ if isinstance(each, Exception) else "approved" for each in said]

    return asyncio.run(all_of_them())
