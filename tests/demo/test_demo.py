"""`surefoot demo` as a reader starts it: real processes, real kills, and what its report says, looked up again here."""

import csv
import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.demo.options import Options, checked
from app.demo.worlds.mailbox import mails
from app.demo.worlds.publishing import publications, requests
from tests.demo.performance import KEYS, Performance, perform
from tests.kit import Site
from tests.monthly_report.reckoning import generated
from transactions import InvalidInput

FIGURES = {"flights": 29_327, "cancelled": 486, "delayed_departures": 6_372, "late_arrivals": 6_852}
FLIGHTS = Path(__file__).parents[2] / "app" / "agents" / "monthly_report" / "data" / "ny_flights_2013_daily.csv"


def check_the_world(facts: dict[str, Any]) -> Path:
    """The report's numbers against the files of the publishing service and the mailbox. Returns their folder."""
    folder = Path(facts["report_path"]).parent
    [run_id] = facts["run_ids"]
    of_run = [row for row in publications(folder / "publishing.sqlite") if row.reference.startswith(f"{run_id}/")]
    assert len(of_run) == facts["publications"] == 1
    posts = [row for row in requests(folder / "publishing.sqlite") if row.method == "POST"]
    assert [post.reference for post in posts].count(of_run[0].reference) == 1
    assert len(posts) == 1 + facts["plain_publications"] == 3
    kept = mails(folder / "mail.sqlite")
    assert (
        len([mail for mail in kept if of_run[0].sha256 in mail.body and "plain-loop" not in str(mail.message_id)]) == 1
    )
    report = Path(facts["report_path"]).read_bytes()
    assert report.decode() == of_run[0].body
    assert hashlib.sha256(report).hexdigest() == facts["report_sha256"] == of_run[0].sha256
    assert facts.keys() >= KEYS
    assert (facts["mails"], facts["duplicate_effects"], facts["lost_results"]) == (1, 0, 0)
    assert (facts["run_status"], facts["false_claims"]) == ("completed", [])
    return folder


def check_the_kills(facts: dict[str, Any], failpoints: list[str] | None, count: int) -> None:
    kills = facts["kills"]
    assert len(kills) == count
    assert {kill["wait_status"] for kill in kills} == {-signal.SIGKILL}
    assert len({kill["pid"] for kill in kills}) == count
    if failpoints is not None:
        assert [kill["failpoint"] for kill in kills] == failpoints
        assert [kill["continued_by_pid"] for kill in kills[:-1]] == [kill["pid"] for kill in kills[1:]]
    for kill in kills:
        assert kill["continued_by_pid"] not in (None, kill["pid"])


def test_three_kills_and_everything_once(home: Path) -> None:
    """In the embedded database, as the README's first screen has it."""
    demo = perform(home)
    facts = demo.facts()
    check_the_world(facts)
    check_the_kills(facts, ["tool.transaction.after_commit", "while it waits for approval", "effect.after_send"], 3)
    assert facts["figures"] == FIGURES
    with FLIGHTS.open() as file:
        assert facts["business_rows"] == len(list(csv.DictReader(file)))
    said = demo.said()
    assert re.search(r"^publish the report +\| +1 \| +2 \| +2 \| +1 \| +1$", said, re.MULTILINE)
    assert re.search(r"^mail the team +\| +1 \| +1 \| +1 \| +1 \| +1$", said, re.MULTILINE)
    assert "a server that does not honour it would show a repeat" in said
    assert "found already committed, not done again: save_report" in said
    assert "recorded as done, and not sent again: publish_report" in said
    assert facts["report_path"] in said
    check_the_sql(demo)


def check_the_sql(demo: Performance) -> None:
    """The command it ends with shows the run, though the demo and its database have ended."""
    command = re.search(r'^ +surefoot db psql -c "(.*)"$', demo.said(), re.MULTILINE)
    assert command
    env = {**os.environ, "SUREFOOT_HOME": str(demo.home)}
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "db", "psql", "-c", command[1]],
        capture_output=True,
        text=True,
        env=env,
        check=True,
    )
    for words in ("run.queued", "replayed", "reused", "verification", "approved", "run.completed"):
        assert words in done.stdout


def test_the_reader_kills_it_at_published_not_recorded(home: Path) -> None:
    """A second demo in the same database, where the kill is typed by somebody else."""
    demo = perform(home, "--hold")
    line = demo.until_it_says("kill -9 ")
    pid = int(line.rpartition(" ")[2])
    said = demo.said()
    assert "has 1 publication of this run, and Surefoot" in said
    assert "has 0 receipts for it" in said
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    os.kill(pid, signal.SIGKILL)
    facts = demo.facts()
    check_the_world(facts)
    check_the_kills(facts, ["tool.transaction.after_commit", "while it waits for approval", "effect.after_send"], 3)
    assert facts["kills"][-1]["pid"] == pid


def test_what_the_manager_edits_after_the_approval_is_what_is_published(home: Path) -> None:
    demo = perform(home, "--edit")
    facts = demo.facts()
    folder = check_the_world(facts)
    check_the_kills(facts, ["tool.transaction.after_commit", "while it waits for approval", "effect.after_send"], 3)
    report = Path(facts["report_path"]).read_text()
    assert report.endswith("Read and edited by the manager.\n")
    told = [mail for mail in mails(folder / "mail.sqlite") if facts["report_sha256"] in mail.body]
    assert len(told) == 1, "and the team is told of that one"
    assert "the approval of the one before is superseded" in demo.said()


def test_random_kills_on_a_server_and_a_file_of_ones_own(database_url: str, tmp_path: Path) -> None:
    data = tmp_path / "figures.csv"
    data.write_bytes(generated(7))
    rows = list(csv.DictReader(data.read_text().splitlines()))
    month = max(row["date"] for row in rows)[:7]
    given = ("--kills", "3", "--seed", "7", "--data", str(data), "--month", month)
    demo = perform(tmp_path / "home", *given, database_url=database_url)
    facts = demo.facts()
    check_the_world(facts)
    check_the_kills(facts, None, 3)
    assert facts["seed"] == 7
    of_month = [row for row in rows if row["date"].startswith(month)]
    assert facts["figures"] == {name: sum(int(row[name]) for row in of_month) for name in FIGURES}
    assert facts["business_rows"] == len(rows)
    assert "SUREFOOT_STALLS_MAX" in demo.said()
    for kill in facts["kills"]:
        assert re.search(rf"^ *{kill['pid']} .* -9 +{kill['continued_by_pid']}$", demo.said(), re.MULTILINE)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_everything_it_started_ends_with_it(number: signal.Signals, code: int, home: Path) -> None:
    demo = perform(home)
    demo.until_it_says("A plain pydantic-ai loop")
    assert len(demo.left()) > 1
    demo.process.send_signal(number)
    assert demo.process.wait(60) == code
    assert demo.left() == []


def test_it_does_not_share_a_database_with_other_workers_or_their_runs(site: Site) -> None:
    worker = site.working()
    refused = site.command("demo", SUREFOOT_HOME=str(site.folder / "home"))
    assert refused.returncode == 1
    assert re.fullmatch(rf"surefoot: A worker \(pid {worker.pid} on .+\) serves this .+\n", refused.stderr)
    worker.kill()
    site.start()
    refused = site.command("demo", SUREFOOT_HOME=str(site.folder / "home"))
    assert refused.returncode == 1
    assert re.fullmatch(r"surefoot: 1 runs on this database are unfinished, .+\n", refused.stderr)
    assert site.world.publish_requests() == []


def test_a_database_that_is_down_is_told_before_anything_starts(site: Site) -> None:
    home = site.folder / "home"
    down = site.command("demo", DATABASE_URL="postgresql://x@127.0.0.1:1/x", SUREFOOT_HOME=str(home))
    assert (down.returncode, down.stdout) == (1, "")
    assert re.fullmatch(r"surefoot: The database .+ cannot be reached .+\n", down.stderr)
    assert not home.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (Options(month="2014-01"), "has no data for 2014-01: choose one of 2013-01"),
        (Options(month="August"), "'August' is not a month; write it as YYYY-MM"),
        (Options(data=Path("/nowhere.csv")), "nowhere.csv cannot be read"),
        (Options(json=Path("/nowhere/out.json")), "--json /nowhere/out.json cannot be written"),
        (Options(json=Path("/tmp")), "--json /tmp cannot be written"),
        (Options(kills=0), "--kills 0: give a number from 1"),
        (Options(kills=501), "--kills 501: give a number from 1"),
        (Options(seed=3), "--seed chooses random kills: say how many with --kills N"),
        (Options(kills=3, hold=True), "give one of them"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_cannot_do_is_one_sentence(options: Options, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked(options)
    assert sentence in str(refused.value)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty; start it with the header line"),
        ("date,origin\n2013-08-01,EWR\n", "are missing"),
        (FLIGHTS.read_text().replace(",10,0,352,", ",ten,0,352,", 1), "'ten' is not a whole number"),
    ],
    ids=["empty", "columns missing", "a word for a number"],
)
def test_a_malformed_file_is_one_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    data = tmp_path / "figures.csv"
    data.write_text(content)
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        checked(Options(data=data))


def test_further_runs_report_on_the_following_months() -> None:
    given = checked(Options(month="2013-11"))
    assert [given.request(number)["month"] for number in range(3)] == ["2013-11", "2013-12", "2013-01"]
    assert "data" not in given.request(0)
