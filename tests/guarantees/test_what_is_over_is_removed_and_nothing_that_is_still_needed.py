"""What is over is removed by policy, with every row of it and whoever dies on the way; nothing that is needed is."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from tests.kit import World, Zygote, until
from tests.outside import Outside
from tests.stage import Stage

_NUMBERS = itertools.count()
MANY = 800
# Every call does something else; what is called NAME is another thing in every copy of the run.
RICH = [
    [("look", {"text": "seen"}), ("note", {"text": "noted"})],
    [("send", {"text": "sent"})],
    [("save", {"name": "minutes of NAME", "text": "saved"})],
    [("named_send", {"text": "by name", "name": "NAME"})],
    [("gated_send", {"text": "agreed"})],
    [("place", {"text": "placed"})],
    [("tell", {"text": "told"})],
]
TABLES = (
    "select n.nspname || '.' || c.relname as name from pg_class c join pg_namespace n on n.oid = c.relnamespace"
    " where n.nspname in ('surefoot', 'dbos') and c.relkind in ('r', 'p') order by 1"
)
# Copies of every row that names a run, in every table of both schemas: a new table is copied, and looked at, by itself.
COLUMNS = """
select string_agg(quote_ident(attname), ', ' order by attnum) as names,
       string_agg(case when format_type(atttypid, null) in ('text', 'jsonb')
                  then format('replace(replace(t.%%I::text, %%L, n.id), ''NAME'', n.name)::%%s', attname, %(old)s::text,
                              format_type(atttypid, null))
                  else 't.' || quote_ident(attname) end, ', ' order by attnum) as copies
  from pg_attribute where attrelid = %(table)s::regclass and attnum > 0 and not attisdropped and attidentity = ''"""
# Of what it takes for a run to be old enough, and for what belongs to no run.
AGE = """
update surefoot.runs set ended_at = ended_at - interval '1 day';
update surefoot.actions set settled_at = settled_at - interval '1 day';
update surefoot.attempts set deadline_at = deadline_at - interval '1 day';
"""
SHORT = {
    f"SUREFOOT_KEEP_{kind}_S": "60" for kind in ("ENGINE", "MESSAGES", "EVENTS", "OUTBOX", "ARTIFACTS", "RUNS", "KEYS")
}


@pytest.fixture(scope="module")
def done(
    clone: Callable[[str], AbstractContextManager[str]], zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A database with a run that has done something with every kind of tool, is over, and was undone; and its id."""
    folder = tmp_path_factory.mktemp("done")
    with clone("done") as url, Outside() as outside, Stage(url, World(folder), outside, folder, zygote) as stage:
        stage.rows("insert into surefoot.subscriptions values ('default', 'run.finished', 'mail', false)")
        worker = stage.working()
        run_id = stage.script(*RICH, key="of NAME")
        stage.until_state(run_id, "waiting")
        stage.approve(run_id)
        stage.until_state(run_id, "completed")
        assert stage.command("runs", "undo", run_id).returncode == 0
        undone = "select count(*) as n from surefoot.actions where undoes is not null and settled_at is not null"
        until("it is undone", lambda: stage.rows(undone)[0]["n"] == 1)
        done = "select count(*) as n from dbos.workflow_status where status <> 'SUCCESS'"
        until("the engine is done", lambda: stage.rows(done)[0]["n"] == 0)
        worker.kill()
        stage.forced(
            "update surefoot.outbox_deliveries set state = 'discarded', settled_at = now(), lease_until = null"
            " where state <> 'delivered' and consumer <> 'effect'"
        )
        stage.rows("update surefoot.workers set state = 'dead', ended_at = now(), reason = 'a test'")
        yield url, run_id


@pytest.fixture
def database_url(done: tuple[str, str]) -> Iterator[str]:
    """A copy of it for each test."""
    server, template = make_url(done[0]).set(database="postgres"), make_url(done[0]).database
    assert template is not None
    name = f"copy_{next(_NUMBERS)}"
    with psycopg.connect(server.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(
            sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
        )
        yield server.set(database=name).render_as_string(hide_password=False)
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def over(done: tuple[str, str]) -> str:
    return done[1]


def naming(stage: Stage, what: str) -> dict[str, int]:
    """How many rows of each table say this anywhere."""
    found = {row["name"]: 0 for row in stage.rows(TABLES)}
    for name in found:
        found[name] = stage.rows(f"select count(*) as n from {name} t where strpos(t::text, %s) > 0", what)[0]["n"]
    return {name: many for name, many in found.items() if many}


def copied(stage: Stage, run_id: str, times: int) -> None:
    asked = {"old": run_id, "times": times}
    numbers = (
        "generate_series(1, %(times)s) as g,"
        " lateral (select 'copy' || g || '-' || %(old)s::text as id, 'copy' || g as name) as n"
    )
    replica = "-c session_replication_role=replica"
    with psycopg.connect(stage.database_url, autocommit=True, options=replica) as connection:
        for table in naming(stage, run_id):
            found = connection.execute(COLUMNS, {**asked, "table": table}).fetchone()
            assert found is not None
            names, copies = (str(part).replace("%", "%%") for part in found)
            which = "strpos(t::text, %(old)s) > 0"
            insert = f"insert into {table} ({names}) select {copies} from {table} t, {numbers} where {which}"
            connection.execute(insert.encode(), asked)
        connection.execute("analyze")


def test_what_is_over_is_removed_and_nothing_that_is_still_needed(stage: Stage, over: str) -> None:
    needed = stage.script([("named_send", {"text": "by name", "name": "NAME"})])  # it goes on, once there is a worker
    tables = naming(stage, over)
    assert len(tables) > 20, f"the run is to leave something everywhere: {sorted(tables)}"
    copied(stage, over, MANY)
    stage.rows(AGE)
    assert naming(stage, "-" + over)["surefoot.runs"] == MANY
    ran = stage.command("retention", "run", "--kind", "runs", **SHORT)
    assert ran.returncode == 0, ran.stderr
    assert f"runs: removed {MANY + 1} in" in ran.stdout, ran.stdout
    assert (naming(stage, over), naming(stage, "named_send:NAME")) == ({}, {})
    assert naming(stage, needed)["surefoot.runs"] == 1
    assert stage.rows("select kind, items, by from surefoot.removals where kind = 'runs'") == [
        {"kind": "runs", "items": MANY + 1, "by": "unauthenticated"}
    ]


def test_killed_anywhere_a_later_pass_removes_the_rest_and_nothing_else(stage: Stage, over: str) -> None:
    """One batch and less dies with its process: each run is whole or gone."""
    copied(stage, over, 250)
    stage.rows(AGE)
    whole = naming(stage, f"copy7-{over}")
    points = [f"retention.batch.{moment}_commit:{n}" for n in (1, 9, 12) for moment in ("before", "after")]
    for point in (*points, "retention.look.after_commit:5", "retention.asked.after_commit"):
        process = stage.worker(point, command=("retention", "run"), **SHORT)
        assert process.until_it_dies() in (-9, 0)
        for row in stage.rows(
            "select run_id from surefoot.runs where starts_with(run_id, 'copy') order by random() limit 5"
        ):
            left = naming(stage, row["run_id"])
            assert set(left) >= {"surefoot.runs", "surefoot.segments", "surefoot.actions", "surefoot.receipts"}
            assert left["surefoot.receipts"] == whole["surefoot.receipts"]
    assert stage.command("retention", "run", "--kind", "runs", **SHORT).returncode == 0
    assert naming(stage, over) == {}
    told = stage.rows("select sum(items)::int as items from surefoot.removals where kind = 'runs'")
    assert told == [{"items": 251}], "each is counted once"


def test_of_a_run_that_is_gone_everything_says_so(stage: Stage, over: str) -> None:
    ids = {
        "runs": over,
        "approvals": stage.approvals(over)[0]["approval_id"],
        "actions": stage.rows("select action_id from surefoot.actions limit 1")[0]["action_id"],
    }
    stage.rows(AGE)
    _, api = stage.serve(**SHORT)
    assert api.get(f"/runs/{over}").status_code == 200
    dry = api.post("/retention/run", json={"dry_run": True, "kinds": ["runs"]})
    assert dry.json()[0]["items"] == 1
    assert api.get(f"/runs/{over}").status_code == 200
    done = api.post("/retention/run", json={"kinds": ["runs"]})
    assert (done.json()[0]["items"], done.json()[0]["kept"]) == (1, {})
    gone = [*(f"/{noun}/{id}" for noun, id in ids.items()), f"/runs/{over}/events", f"/runs/{over}/undo"]
    for path in gone:
        answer = api.get(path)
        assert (path, answer.status_code) == (path, 404)
        assert answer.json()["error"].startswith("No ")
    assert api.post(f"/runs/{over}/undo").status_code == 404
    assert api.get("/artifacts", params={"name": "minutes of NAME"}).json() == []
    shown = stage.command("runs", "show", over)
    assert (shown.returncode, shown.stderr.startswith(f"surefoot: No run {over}")) == (1, True)
    assert api.get("/retention").json()["removed"][0]["items"] == 1


def test_workers_do_it_by_themselves(stage: Stage, over: str) -> None:
    stage.rows(AGE)
    stage.working(**SHORT, SUREFOOT_RETENTION_S="1")
    until("the run is gone", lambda: naming(stage, over) == {})


def test_by_default_a_run_stays_and_only_the_engine_forgets_it(stage: Stage, over: str) -> None:
    stage.rows(AGE)
    stage.rows("update surefoot.segments set settled_at = settled_at - interval '2 days'")
    stage.rows("update dbos.workflow_status set completed_at = completed_at - 2 * 86400000")
    before = naming(stage, over)
    assert stage.command("retention", "run").returncode == 0
    after = naming(stage, over)
    assert {name for name in before if name not in after} == {name for name in before if name.startswith("dbos.")}
    assert {name: many for name, many in before.items() if name in after} == after


def test_control_a_role_that_may_delete_less_leaves_rows_behind(stage: Stage, over: str) -> None:
    """The look over all tables would notice: here the steps of a run have no policy that shows them to who removes."""
    stage.rows("drop policy retention on surefoot.run_states")
    stage.rows("alter table surefoot.run_states drop constraint run_states_run_id_fkey")
    stage.rows(AGE)
    assert stage.command("retention", "run", **SHORT).returncode == 0
    assert set(naming(stage, over)) == {"surefoot.run_states"}
