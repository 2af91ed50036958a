"""What the reader sees: progress with its seconds, the timeline, the table, the claims, and where to look further."""

import time
from collections.abc import Sequence
from pathlib import Path

from app.demo import timeline
from app.demo.judge import Claim, Facts
from app.demo.options import Input
from app.demo.records import Records
from app.demo.summary import Line, Summary

_TABLE = """
                    |       | a plain loop        | Surefoot
effect              | asked | sent | in the world | sent | in the world"""


class Teller:
    """Prints as it happens; `began` is the monotonic time at which the performance began."""

    def __init__(self, began: float) -> None:
        self._began = began

    def __call__(self, text: str, /) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}".rstrip(), flush=True)

    def heading(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def opening(self, given: Input, embedded: Path | None, folder: Path) -> None:
        """What is about to happen, where."""
        print(f"A report on {given.months[0]} from {given.file.name}: analysed, approved, published once, mailed once.")
        place(embedded, folder)

    def timelines(self, records: Records, facts: Facts) -> None:
        for run in facts.runs:
            self.heading(f"What happened to run {run.run_id} (from surefoot.run_timeline)")
            kills = [kill for kill in facts.kills if kill.run_id == run.run_id]
            for line in timeline.in_words(records.rows(timeline.SQL, run_id=run.run_id), kills):
                print(line)

    def kills(self, facts: Facts) -> None:
        """One line a kill."""
        self.heading(f"{'pid':>8}  {'died at':42} wait status  continued by pid")
        for kill in facts.kills:
            print(f"{kill.pid:8}  {kill.failpoint:42} {kill.wait_status:11}  {kill.continued_by_pid}")

    def ending(self, facts: Facts, claims: Sequence[Claim], summary: Summary) -> None:
        """The table, the claims, the costs, and where to look further."""
        table(summary.table)
        about_mail(summary.table[1])
        self.claims(claims, "the publishing service, the mailbox and the database")
        stored = f"{summary.stored_rows:,} rows, {summary.stored_bytes / 1000:,.0f} kB"
        print(f"It took {summary.seconds:.1f} s, and Surefoot stored {stored} for it.")
        if summary.report_path:
            print(f"The report:  {summary.report_path}\n             SHA-256 {summary.report_sha256}")
        about_sql([run.run_id for run in facts.runs])

    def claims(self, claims: Sequence[Claim], against: str) -> None:
        """How many are false, and which. `against`: what they were checked with."""
        wrong = [claim for claim in claims if not claim.holds]
        self.heading(f"{len(claims)} claims checked against {against}: {len(wrong)} false.")
        for claim in wrong:
            print(f"  {claim}")


def place(embedded: Path | None, folder: Path) -> None:
    """Where it happens."""
    where = "the server of DATABASE_URL" if embedded is None else f"the embedded Postgres in {embedded}"
    print(f"Database: {where}\nFolder:   {folder}\nThe model is scripted, so nothing needs a key.", flush=True)


def table(lines: Sequence[Line]) -> None:
    """What each effect came to, under a plain loop and under Surefoot."""
    print(_TABLE)
    for line in lines:
        print(_cells(line))


def _cells(line: Line) -> str:
    plain = f"{line.plain_sent:4} | {line.plain_in_the_world:12}"
    return f"{line.effect:19} | {line.asked:5} | {plain} | {line.sent:4} | {line.in_the_world:12}"


def about_mail(line: Line) -> None:
    """What a mail server that is killed at can show: SMTP has no way to ask whether a mail was taken."""
    again = line.sent - line.in_the_world
    happened = f" It happened {again} time{'s' if again > 1 else ''} here." if again > 0 else ""
    print(
        "This mailbox keeps one mail for each Message-ID, as mail stores do that honour it. SMTP itself cannot be\n"
        "asked: killed between the server's 250 and the next commit, Surefoot submits the same Message-ID again, and\n"
        f"a server that does not honour it would show a repeat in that window.{happened}"
    )


def about_sql(run_ids: Sequence[str]) -> None:
    """How to look further."""
    print("The run, row by row:")
    for run_id in run_ids:
        where = f"where run_id = '{run_id}' order by line"
        print(f'  surefoot db psql -c "select * from surefoot.run_timeline {where}"')  # noqa: S608  shown, not run
