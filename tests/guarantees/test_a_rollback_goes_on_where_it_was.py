"""The version that is made current again, or that comes back by itself, has what waits and what is new."""

from tests.builds import SOON, begun_by, build, drained, until_current
from tests.stage import Stage
from transactions import versions

ASKED = ([("gated_note", {"text": "asked"})], [("note", {"text": "told"})])


def test_a_rollback_goes_on_where_it_was(stage: Stage) -> None:
    """The old image is rolled out again: its worker is no new version, and the new one has no worker any more."""
    first = stage.working()
    run_id = stage.script(*ASKED)
    stage.until_state(run_id, "waiting")
    second = stage.working(**build("COMPATIBLE"))
    drained(first)
    stage.approve(run_id)
    stage.until_state(run_id, "completed")
    other = stage.script(*ASKED)
    stage.until_state(other, "waiting")
    stage.working(**SOON)
    assert _current(stage) == "2"  # that it is started again alone changes nothing
    drained(second)
    stage.approve(other, "reject")  # the version before knows nothing of what the later one has asked
    stage.until_state(other, "completed")
    until_current(stage, "1")
    assert begun_by(stage, run_id) == ["1", "2"]
    assert begun_by(stage, other) == ["2", "1"]


def test_the_version_that_a_person_makes_current_has_what_waits_and_what_is_new(stage: Stage) -> None:
    stage.working()
    run_id = stage.script(*ASKED)
    stage.until_state(run_id, "waiting")
    stage.working(**build("COMPATIBLE"))
    new = stage.script([("note", {"text": "new"})])
    stage.until_state(new, "completed")
    listed = stage.command("versions", "list").stdout
    assert listed.index("scripted 2: writes state 1; current since") < listed.index(
        "scripted 1: writes state 1; 1 runs"
    )
    [old] = stage.rows("select version, n from surefoot.versions where version like '%%scripted=1%%'")
    used = stage.command("versions", "use", str(old["n"]))
    assert (used.returncode, used.stdout) == (0, f"current: {old['version']}\n")
    stage.approve(run_id)
    again = stage.script([("note", {"text": "again"})])
    stage.until_state(run_id, "completed")
    stage.until_state(again, "completed")
    assert begun_by(stage, new) == ["2"]
    assert begun_by(stage, run_id) == ["1", "1"]
    assert begun_by(stage, again) == ["1"]
    assert stage.rows("select version from surefoot.agents where name = 'scripted'") == [{"version": "1"}]


def test_control_where_each_start_is_a_deploy_an_old_worker_takes_the_new_runs(stage: Stage) -> None:
    old = stage.working()
    stage.working(**build("COMPATIBLE"))
    old.kill()
    stage.working(broken=each_start_is_a_deploy)
    assert _current(stage) == "1"
    run_id = stage.script([("note", {"text": "new"})])
    stage.until_state(run_id, "completed")
    assert begun_by(stage, run_id) == ["1"]


def each_start_is_a_deploy() -> None:
    once = versions.begin

    async def begin(session, version):  # type: ignore[no-untyped-def]
        new = await once(session, version)
        await versions.use(session, version, by="deploy")
        return new

    versions.begin = begin


def _current(stage: Stage) -> str:
    named = "select substring(surefoot.current_version('scripted') from 'scripted=(\\d+)') as version"
    return stage.rows(named)[0]["version"]
