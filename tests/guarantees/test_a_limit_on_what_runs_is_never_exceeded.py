"""However many workers there are, and whoever of them dies: of what is limited no more runs at once than may."""

import json
from typing import Any

from tests.kit import until
from tests.stage import Stage
from transactions.admitting import Left

SCRIPT = [[("note", {"text": "a"})], [("send", {"text": "b"})], [("note", {"text": "c"})]]
RUNS = 9
OVER = "select count(*) as n from surefoot.runs where state = 'completed'"
# When each segment was carried out: from its first begin, wherever that was, until the commit that ended it.
CARRIED = """
select r.agent, min(b.at) as began, min(e.at) as ended
  from surefoot.runs r
  join surefoot.events b on b.run_id = r.run_id and b.kind = 'segment.began'
  left join surefoot.events e on e.run_id = r.run_id and e.data -> 'segment' = b.data -> 'segment'
       and e.kind in ('run.completed', 'run.queued', 'run.waiting', 'segment.lost')
 group by r.run_id, r.agent, b.data -> 'segment'"""


def test_a_limit_on_what_runs_is_never_exceeded(stage: Stage) -> None:
    start(stage)
    dying = stage.worker("queue.look.before_commit:25")
    killed = stage.working()
    until("some are over", lambda: stage.rows(OVER)[0]["n"] >= 4)
    killed.kill()
    last = stage.working()
    until("the worker that dies in the middle of admitting is dead", lambda: dying.exit_code() is not None)
    until("all are over", lambda: stage.rows(OVER)[0]["n"] == 2 * RUNS)
    assert last.exit_code() is None
    most = at_once(stage)
    assert most["all"] == 3  # and they were used
    assert most["hasty"] == 1
    assert len(stage.outside.sent) == 2 * RUNS


def test_control_where_what_runs_is_not_counted_it_is(stage: Stage) -> None:
    start(stage)
    stage.working(broken=nothing_is_counted)
    until("all are over", lambda: stage.rows(OVER)[0]["n"] == 2 * RUNS)
    assert at_once(stage)["all"] > 3


def start(stage: Stage) -> None:
    """Runs of two agents of a tenant of which three may run at once, and of one of the agents one."""
    stage.announce()
    limited = "insert into surefoot.limits (tenant, agent, running_max, changed_by) values ('default', %s, %s, 'ada')"
    stage.rows(limited, "", 3)
    stage.rows(limited, "hasty", 1)
    for agent in ("scripted", "hasty"):
        started = "select surefoot.start_run(%s, %s::jsonb) from generate_series(1, %s)"
        stage.rows(started, agent, json.dumps({"turns": SCRIPT}), RUNS)


def at_once(stage: Stage) -> dict[str, int]:
    """The most that were carried out at one moment, of all and of one agent."""
    rows = stage.rows(CARRIED)
    return {"all": most(rows), "hasty": most([row for row in rows if row["agent"] == "hasty"])}


def most(rows: list[dict[str, Any]]) -> int:
    return max(sum(one["began"] <= row["began"] < one["ended"] for one in rows) for row in rows)


def nothing_is_counted() -> None:
    Left.take = lambda self, head: True  # pyright: ignore[reportAttributeAccessIssue]
