"""Is what the demo says true? Judged by what the outside world and the database say, in numbers and bytes.

Nothing here belongs to the engine: rows come in, claims go out. `judge_effects` is for any run whose effects publish
under their action's id; `judge` is for a whole performance of the demo.
"""

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.demo.kills import COMMITTED, PUBLISHED
from app.demo.worlds.mailbox import Mail, Submission
from app.demo.worlds.publishing import PublicationRow, Request

FIGURES = ("flights", "cancelled", "delayed_departures", "late_arrivals")
PLAIN_PUBLICATIONS = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, whether it holds, and what was found where it does not."""

    says: str
    holds: bool
    found: str = ""

    def __str__(self) -> str:
        return self.says if self.holds else f"{self.says}: FALSE, {self.found}"


@dataclass(frozen=True, slots=True)
class World:
    """What the publishing service and the mailbox have in their own files, oldest first."""

    publications: Sequence[PublicationRow]
    requests: Sequence[Request]
    mails: Sequence[Mail]
    submissions: Sequence[Submission]


@dataclass(frozen=True, slots=True)
class ActionFacts:
    """A row of the ledger: `receipts` and how many of them contradict another or a verdict."""

    action_id: str
    tool: str
    kind: str
    state: str
    receipts: int
    contradictions: int


@dataclass(frozen=True, slots=True)
class MailFacts:
    """An outbox entry for the mailbox: the state of its delivery, and the Message-ID it went out under."""

    entry_id: str
    state: str
    message_id: str | None


@dataclass(frozen=True, slots=True)
class CallFacts:
    """A tool call of the model, and how many answers it was given."""

    call_id: str
    tool: str
    answers: int


@dataclass(frozen=True, slots=True)
class ArtifactFacts:
    """A saved version of the report, with the hash of its bytes as stored."""

    name: str
    version: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run of Surefoot as its rows tell it. `figures`: of the month, as the tool answered the model.

    `edited`: actions that a person has changed before they were done; `actions` has what was done instead.
    `reused`: steps that found their commit there already. `verified`: effects whose first receipt is a verification.
    """

    run_id: str
    month: str
    state: str
    calls: Sequence[CallFacts]
    actions: Sequence[ActionFacts]
    edited: Sequence[str]
    mails: Sequence[MailFacts]
    artifacts: Sequence[ArtifactFacts]
    approved_sha256: Sequence[str]
    figures: Mapping[str, int]
    reused: int
    verified: int
    seen_before_approval: tuple[int, int] | None

    @property
    def effects(self) -> list[ActionFacts]:
        return [action for action in self.actions if action.kind == "effect"]


@dataclass(frozen=True, slots=True)
class KillFacts:
    """A kill, and the process that did the next thing for the run (None: nobody did)."""

    pid: int
    failpoint: str
    wait_status: int
    run_id: str
    at: datetime
    continued_by_pid: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the verdict rests on. `csv_text`: the input file. `business_rows`: of its data set, in the database.

    `unasked`: publications and mails that belong to nothing anybody asked for. `plain_mails`: of the plain loop.
    """

    runs: Sequence[RunFacts]
    kills: Sequence[KillFacts]
    kills_planned: int
    world: World
    plain_reference: str
    plain_mails: int
    unasked: Sequence[str]
    csv_text: str
    business_rows: int


def false_claims(
    *,
    publications: Sequence[PublicationRow],
    requests: Sequence[Request],
    mails: Sequence[Mail],
    actions: Sequence[ActionFacts],
) -> list[str]:
    """What is not true of effects that publish under their action's id; empty when each was done once and recorded."""
    claims = _effects(publications, requests, mails, actions)
    return [str(claim) for claim in claims if not claim.holds]


def judge(facts: Facts) -> list[Claim]:
    """Every claim of the demo, true or false."""
    return [
        *_plain_loop(facts),
        *_kills(facts),
        *(claim for run in facts.runs for claim in _run(facts, run)),
        _equal("the business rows are those of the file, each once", facts.business_rows, len(_csv_rows(facts))),
        Claim("nothing is in the world that nobody asked for", not facts.unasked, "; ".join(facts.unasked)),
    ]


def duplicate_effects(facts: Facts) -> int:
    """What is there more often than it was asked for: publications, mails, saved versions."""
    runs = facts.runs
    counts = [len(_published(facts.world, effect.action_id)) for run in runs for effect in run.effects]
    counts += [len(_kept(facts.world, mail)) for run in runs for mail in run.mails]
    counts += [len(run.artifacts) - len(run.edited) for run in runs]
    return sum(max(0, count - 1) for count in counts)


def lost_results(facts: Facts) -> int:
    """What was asked for and has no result: calls without an answer, actions without a receipt, mails not there."""
    runs = facts.runs
    calls = sum(call.answers == 0 for run in runs for call in run.calls)
    actions = sum(action.receipts == 0 for run in runs for action in run.actions)
    mails = sum(not _kept(facts.world, mail) for run in runs for mail in run.mails)
    return calls + actions + mails


def _plain_loop(facts: Facts) -> Iterator[Claim]:
    published = len(_published(facts.world, facts.plain_reference))
    yield _equal("the plain loop, killed once, published twice", published, PLAIN_PUBLICATIONS)
    yield _equal("the plain loop sent one mail", facts.plain_mails, 1)


def _kills(facts: Facts) -> Iterator[Claim]:
    kills = facts.kills
    planned = facts.kills_planned
    yield _equal(f"{planned} processes were killed while a run was unfinished", len(kills), planned)
    odd = [f"pid {kill.pid} ended with {kill.wait_status}" for kill in kills if kill.wait_status != -9]
    yield Claim("each of them died by SIGKILL", not odd, "; ".join(odd))
    left = [f"nobody after pid {kill.pid}" for kill in kills if kill.continued_by_pid in (None, kill.pid)]
    yield Claim("after each of them another process went on", not left, "; ".join(left))


def _run(facts: Facts, run: RunFacts) -> Iterator[Claim]:
    world, about = facts.world, f"the report on {run.month}"
    yield _equal(f"{about}: the run is completed", run.state, "completed")
    unanswered = [f"{call.tool} {call.call_id} has {call.answers}" for call in run.calls if call.answers != 1]
    yield Claim(
        f"{about}: each call of the model has one answer", bool(run.calls) and not unanswered, "; ".join(unanswered)
    )
    yield _equal(f"{about}: one publication was asked for", len(run.effects), 1)
    yield from (
        Claim(f"{about}: {claim.says}", claim.holds, claim.found)
        for claim in _effects(world.publications, world.requests, world.mails, run.actions)
    )
    yield _equal(f"{about}: a version was saved, and one for each edit", len(run.artifacts), 1 + len(run.edited))
    published = sum(len(_published(world, action_id)) for action_id in run.edited)
    yield _equal(f"{about}: what was edited is not published as it was", published, 0)
    yield _equal(f"{about}: before the approval nothing of it was in the world", run.seen_before_approval, (0, 0))
    yield _same_bytes(world, run, about)
    yield from _figures(facts, run, about)
    yield from _worst_moments(facts, run, about)
    yield _equal(f"{about}: one mail was asked for", len(run.mails), 1)
    for mail in run.mails:
        yield _equal(f"{about}: its mail is delivered", mail.state, "delivered")
        yield _equal(f"{about}: its mail is in the mailbox once", len(_kept(world, mail)), 1)


def _effects(
    publications: Sequence[PublicationRow],
    requests: Sequence[Request],
    mails: Sequence[Mail],
    actions: Sequence[ActionFacts],
) -> Iterator[Claim]:
    for action in actions:
        if action.kind == "effect":
            made = sum(row.reference == action.action_id for row in publications)
            found = f"the publishing service has {made} publications of {action.action_id}"
            yield Claim(f"{action.tool} was done once", made == 1, found)
            posts = [row for row in requests if row.method == "POST" and row.reference == action.action_id]
            pids = ", ".join(dict.fromkeys(str(row.pid) for row in posts)) or "none"
            found = f"its log has {len(posts)} requests for {action.action_id}, from pids {pids}"
            yield Claim(f"the publishing service was asked for {action.tool} once", len(posts) == 1, found)
    open_ = [f"{action.action_id} is {action.state}" for action in actions if action.state != "SUCCEEDED"]
    yield Claim("each action has succeeded", not open_, "; ".join(open_))
    odd = [
        f"{action.action_id} has {action.receipts}, {action.contradictions} contradicting"
        for action in actions
        if action.receipts != 1 or action.contradictions
    ]
    yield Claim("each action has one receipt and none that contradicts", not odd, "; ".join(odd))
    counted = Counter((mail.message_id, mail.recipients) for mail in mails if mail.message_id is not None)
    twice = [f"{message_id} {count} times" for (message_id, _), count in counted.items() if count > 1]
    yield Claim("no mail is in the mailbox twice", not twice, "; ".join(twice))


def _same_bytes(world: World, run: RunFacts, about: str) -> Claim:
    """The bytes that were published are those that were saved last, and approved."""
    hashes = {
        hashlib.sha256(row.body.encode()).hexdigest() for e in run.effects for row in _published(world, e.action_id)
    }
    hashes |= {artifact.sha256 for artifact in run.artifacts[-1:]} | set(run.approved_sha256)
    holds = len(hashes) == 1 and bool(run.approved_sha256)
    return Claim(f"{about}: published is what was approved, byte for byte", holds, f"hashes {sorted(hashes)}")


def _figures(facts: Facts, run: RunFacts, about: str) -> Iterator[Claim]:
    expected = expected_figures(_csv_rows(facts), run.month)
    yield _equal(f"{about}: its figures are the sums of the file", dict(run.figures), expected)
    texts = [row.body for effect in run.effects for row in _published(facts.world, effect.action_id)]
    missing = [f"{value:,}" for value in expected.values() for text in texts if f"{value:,}" not in text]
    yield Claim(f"{about}: they stand in the published text", bool(texts) and not missing, f"missing: {missing}")


def _worst_moments(facts: Facts, run: RunFacts, about: str) -> Iterator[Claim]:
    """What a kill between a commit and its record must have led to."""
    points = {kill.failpoint for kill in facts.kills if kill.run_id == run.run_id}
    if COMMITTED in points:
        found = "no step says that its commit was there"
        yield Claim(f"{about}: what had committed was found, not done again", run.reused > 0, found)
    if PUBLISHED in points:
        found = "its receipt is not a verification's"
        yield Claim(f"{about}: the publication was verified, not sent again", run.verified > 0, found)


def expected_figures(rows: Iterable[Mapping[str, str]], month: str) -> dict[str, int]:
    """The sums of a month, taken from the file's own lines."""
    of_month = [row for row in rows if row["date"].strip().startswith(f"{month}-")]
    return {name: sum(int(row[name]) for row in of_month) for name in FIGURES}


def _csv_rows(facts: Facts) -> list[dict[str, str]]:
    rows = csv.DictReader(io.StringIO(facts.csv_text.removeprefix("\ufeff"), newline=""), skipinitialspace=True)
    return [{name.strip(): value for name, value in row.items()} for row in rows if any(row.values())]


def _published(world: World, reference: str) -> list[PublicationRow]:
    return [row for row in world.publications if row.reference == reference]


def _kept(world: World, entry: MailFacts) -> list[Mail]:
    return [mail for mail in world.mails if entry.message_id is not None and mail.message_id == entry.message_id]


def _equal(says: str, found: object, expected: object) -> Claim:
    return Claim(says, found == expected, f"found {found}, expected {expected}")
