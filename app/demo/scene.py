"""What the acts of the demo share: the stage, what the database says, the kills so far, and the API of a worker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from app.demo.kills import Kill
from app.demo.options import Input
from app.demo.records import KEY_PREFIX, Records
from app.demo.stage import Child, DemoFailed, Stage, until
from steps.clock import SystemClock

HTTP_TIMEOUT_S = 30.0
MANAGER = "ada@demo"
READY = "surefoot serves "


class Telling(Protocol):
    """Tells the reader what happens now."""

    def __call__(self, text: str, /) -> None: ...


@dataclass(slots=True)
class RunOnStage:
    """A run of this demo. `mails_before`: in the mailbox when it was started.

    `seen_before_approval`: its publications, and the mails since its start, just before it was approved.
    """

    run_id: str
    month: str
    mails_before: int
    seen_before_approval: tuple[int, int] | None = None


@dataclass(slots=True)
class Scene:
    """One performance."""

    stage: Stage
    records: Records
    input: Input
    tell: Telling
    name: str = field(default_factory=lambda: KEY_PREFIX + SystemClock().new_id()[:12])
    runs: list[RunOnStage] = field(default_factory=list[RunOnStage])
    kills: list[Kill] = field(default_factory=list[Kill])

    @property
    def run(self) -> RunOnStage:
        """The run on stage now."""
        return self.runs[-1]

    @property
    def plain_reference(self) -> str:
        """What the plain loop publishes under."""
        return f"plain-loop/{self.name}"

    def start_run(self, worker: Child) -> bool:
        """Start the next run through a worker's API. False: the worker died before anybody could know it was started.

        The key makes it safe to ask again: the same key and body is the same run. Raises DemoFailed when somebody
        else's worker is on this database by now.
        """
        if others := self.records.other_workers(self.stage.pids):
            raise DemoFailed(f"The demo stopped: a worker of somebody else serves this database too: {others[0]}.")
        request = self.input.request(len(self.runs))
        key = f"{self.name}-{len(self.runs)}"
        mails_before = len(self.stage.mails())
        answer = call_api(
            worker,
            "POST",
            "/runs",
            {"agent": "monthly_report", "input": request},
            {"Idempotency-Key": key, **self.records.headers},
        )
        run_id = self.records.run_of_key(key) if answer is None else answer["run_id"]
        if run_id is None:
            return False
        self.runs.append(RunOnStage(run_id, request["month"], mails_before))
        return True

    def approve(self) -> bool:
        """Decide as the manager. False: it is not asked for."""
        if self.run.seen_before_approval is None:
            self.run.seen_before_approval = self._seen()
        approval_id = self.records.value(
            "select approval_id from surefoot.approvals where run_id = :r and state = 'pending'", r=self.run.run_id
        )
        if approval_id is not None:
            self.records.approve(approval_id, by=MANAGER, role="manager")
        return self.records.is_approved(self.run.run_id)

    def edit(self, ending: str) -> None:
        """Approve the report with this at its end, instead of as it was approved before."""
        [asked] = self.records.rows(
            "select approval_id, binding ->> 'artifact' as name, (binding ->> 'version')::integer as version "
            "from surefoot.approvals where run_id = :r and state = 'approved'",
            r=self.run.run_id,
        )
        self.records.edit(asked["approval_id"], asked["name"], asked["version"], ending, by=MANAGER, role="manager")

    def _seen(self) -> tuple[int, int]:
        reference = f"{self.run.run_id}/"
        published = sum(row.reference.startswith(reference) for row in self.stage.publications())
        return published, len(self.stage.mails()) - self.run.mails_before

    def until_state(self, state: str) -> None:
        """Wait for a state of the run on stage. Raises DemoFailed when it ends or is held instead."""
        until_state(self.records, self.run.run_id, state)

    def fail_for(self, state: str) -> None:
        fail_for(self.records, self.run.run_id, state)

    def note_kill(self, worker: Child, failpoint: str) -> Kill:
        """Write down that a worker is dead; it is."""
        status = worker.wait_status()
        assert status is not None
        kill = Kill(worker.pid, failpoint, status, self.run.run_id, self.records.now())
        self.kills.append(kill)
        return kill


def until_state(records: Records, run_id: str, state: str) -> None:
    """Wait for a state of a run. Raises DemoFailed when it ends or is held instead."""

    def look() -> bool:
        now = records.state(run_id)
        if now != state and now in ("completed", "failed", "cancelled", "held"):
            fail_for(records, run_id, now)
        return now == state

    until(f"run {run_id} is {state}", look)


def fail_for(records: Records, run_id: str, state: str) -> None:
    """Raises DemoFailed for a run that is in the wrong state, with why."""
    reason = records.value("select reason from surefoot.runs where run_id = :r", r=run_id)
    raise DemoFailed(f"The demo stopped: run {run_id} is {state}: {reason}")


def call_api(
    worker: Child, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """The JSON answer of a worker's API; None when the worker died meanwhile. Raises DemoFailed for an error."""
    ready = worker.said(READY)
    if ready is None:
        return None
    try:
        with httpx.Client(base_url=ready.split()[0], trust_env=False, timeout=HTTP_TIMEOUT_S) as client:
            answer = client.request(method, path, json=body, headers=headers)
    except httpx.TransportError:
        return None
    if answer.is_error:
        raise DemoFailed(f"The demo stopped: {method} {path} was answered with {answer.status_code}: {answer.text}")
    return answer.json()
