"""Workers of several builds of the agents of `tests/agents`, and what became of runs between them."""

import signal

from tests.kit import Process, until
from tests.stage import Stage

SOON = {"SUREFOOT_VERSION_GRACE_S": "0.5"}


def build(name: str) -> dict[str, str]:
    """What a worker of this build of `tests/agents/builds.py` has in its environment."""
    return {"SUREFOOT_AGENTS": f"tests.agents.builds:{name}"}


def drained(worker: Process) -> None:
    """Ask it to stop, as a rolling deploy does, and wait until it has."""
    worker.signal(signal.SIGTERM)
    assert worker.until_it_dies() == 0, worker.said()


def until_let_go_on(stage: Stage, run_id: str) -> None:
    """Until a run that was held has been completed."""
    until("it is let go on", lambda: stage.state(run_id) != "held")
    stage.until_state(run_id, "completed")


def begun_by(stage: Stage, run_id: str) -> list[str]:
    """The version of `scripted` of the worker of each execution of the run, in order."""
    rows = stage.rows(
        "select substring(w.version from 'scripted=(\\d+)') as version from surefoot.events e "
        "join surefoot.workers w using (worker_id) where e.run_id = %s and e.kind = 'segment.began' order by e.seq",
        run_id,
    )
    return [row["version"] for row in rows]


def began(stage: Stage) -> dict[str, list[str]]:
    """The same of every run."""
    rows = stage.rows(
        "select e.run_id, array_agg(substring(w.version from 'scripted=(\\d+)') order by e.seq) as versions "
        "from surefoot.events e join surefoot.workers w using (worker_id) "
        "where e.kind = 'segment.began' group by e.run_id"
    )
    return {row["run_id"]: row["versions"] for row in rows}


def outlasted_s(stage: Stage) -> dict[str, float]:
    """How long after it said that it drains a worker has last begun a segment, or recorded anything of a run: each
    worker that has, in seconds of the database."""
    rows = stage.rows(
        "select w.worker_id, extract(epoch from max(did.at) - w.draining_at)::float as s from surefoot.workers w "
        "join (select worker_id, at from surefoot.events "
        "union all select worker_id, finished_at from surefoot.steps) did using (worker_id) "
        "where w.draining_at is not null group by w.worker_id, w.draining_at"
    )
    return {row["worker_id"]: row["s"] for row in rows}


def reason(stage: Stage, run_id: str) -> str:
    return stage.rows("select reason from surefoot.runs where run_id = %s", run_id)[0]["reason"]


def events(stage: Stage, run_id: str, kind: str) -> list[dict[str, object]]:
    rows = stage.rows("select data from surefoot.events where run_id = %s and kind = %s order by seq", run_id, kind)
    return [row["data"] for row in rows]


def until_current(stage: Stage, version: str) -> None:
    """Until this version of `scripted` is current."""
    current = "select substring(surefoot.current_version('scripted') from 'scripted=(\\d+)') as version"
    until(f"version {version} is current", lambda: stage.rows(current)[0]["version"] == version)
