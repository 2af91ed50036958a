"""A run, its segments and its waits against a model: claims, executions that were fenced, losses, deaths, wake-ups."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.model.machines import Model, changed, is_missed, search, seldom, workers
from tests.races import invariants
from tests.races.scenes import ADA, SERVING, Scene
from transactions import (
    Cancelling,
    Conflict,
    Event,
    Execution,
    Fenced,
    RunState,
    Session,
    StepRow,
    WorkerId,
    cancelling,
    events,
    number_done,
    number_fenced,
    receipts,
    record_steps,
    runs,
    segments,
    stopping,
    waits,
)
from transactions import workers as registry
from transactions.segments import Ending
from transactions.waits import Wait

STALLS_MAX = 3
NOW = "2026-01-01T00:00:00+00:00"


@dataclass
class Segment:
    outcome: str | None = None
    executions: int = 0
    turns: int = 0
    engine: str = "ENQUEUED"
    executor: str = ""
    answers: dict[str, bool] | None = None


@dataclass
class Call:
    position: int
    wait: Wait
    segment: int | None = None  # that waits for it, or has waited
    outcome: str | None = None
    settled: bool = False


@dataclass
class Now:
    """What the model says of the run."""

    state: str = "queued"
    generation: int = 0
    stalls: int = 0
    turns: int = 0
    steps: int = 0
    steps_seen: int = 0
    segments: list[Segment] = field(default_factory=lambda: [Segment()])
    calls: list[Call] = field(default_factory=list)

    @property
    def n(self) -> int:
        return len(self.segments) - 1

    @property
    def segment(self) -> Segment:
        return self.segments[-1]

    def settle(self, outcome: str) -> None:
        if self.segment.outcome is None:
            self.segment.outcome, self.segment.turns = outcome, self.turns

    def next(self) -> None:
        self.state = "queued"
        self.segments.append(Segment())

    def wake(self) -> None:
        if self.state == "waiting" and not any(c.segment == self.n and c.outcome is None for c in self.calls):
            self.next()

    def answers(self) -> dict[str, bool]:
        """What a segment that executes first now has to tell the model about the calls before it."""
        for n in range(self.n - 1, -1, -1):
            ended = self.segments[n]
            if ended.outcome not in ("lost", "held"):
                mine = [call for call in self.calls if call.segment == n]
                return {c.wait.call_id: c.outcome == "go" for c in mine} if ended.turns == self.turns else {}
        return {}


class Runs(Model):
    """One run, two workers."""

    def __init__(self, scene: Scene, loop: asyncio.Runner) -> None:
        super().__init__(scene, loop)
        self.run_id = loop.run(scene.start())
        self.now = Now()
        self.executions: list[Execution] = []
        self.dead: set[WorkerId] = set()

    def mine(self, back: int) -> Execution:
        return self.executions[max(0, len(self.executions) - 1 - back)]

    def holds(self, execution: Execution) -> bool:
        """Whether this execution is the run's current one, which may record what it did."""
        now = self.now
        token = (execution.generation, execution.segment)
        current = token == (now.generation, now.n) and now.segment.outcome is None
        return current and now.state in ("running", "cancelling")

    def may_begin(self, execution: Execution) -> bool:
        """Whether it may still begin something."""
        return self.holds(execution) and self.now.state == "running"

    @initialize(far=st.sampled_from((0, 1, 1, 2, 3, 4)))
    def set_out(self, far: int) -> None:
        """The interesting sequences are deep."""
        if far:
            self.dequeue(ADA)
            self.begin(ADA, 0, dies=False)
        if far > 1:
            self.call(0, dies=False)
        if far > 2:
            self.end(0, "waiting", dies=False)
            self.receive(0, dies=False)
        if far > 3:
            self.dequeue(ADA)
            self.lose(really=True)
            self.restart_lost(0, dies=False)

    # The engine.

    @rule(worker=workers)
    def dequeue(self, worker: WorkerId) -> None:
        self.loop.run(self.scene.dequeue(self.run_id, self.now.n, worker))
        if self.now.segment.engine == "ENQUEUED":
            self.now.segment.engine, self.now.segment.executor = "PENDING", worker

    @rule(worker=workers)
    def hand_over(self, worker: WorkerId) -> None:
        self.loop.run(self.scene.hand_over(self.run_id, self.now.n, worker))
        if self.now.segment.engine == "PENDING":
            self.now.segment.executor = worker

    @rule(really=seldom)
    def lose(self, really: bool) -> None:
        if really:
            self.loop.run(self.scene.lose(self.run_id, self.now.n))
            if self.now.segment.engine == "PENDING":
                self.now.segment.engine = "ERROR"

    # Executions.

    @rule(worker=workers, dies=seldom)
    def take_up(self, worker: WorkerId, dies: bool) -> None:
        """What mostly happens to a segment in the queue, in one rule, so that a sequence gets somewhere."""
        if self.now.segment.engine == "ENQUEUED":
            self.dequeue(worker)
        self.begin(WorkerId(self.now.segment.executor), 0, dies)

    @rule(worker=workers, back=st.sampled_from((0, 0, 0, 1)), dies=seldom)
    def begin(self, worker: WorkerId, back: int, dies: bool) -> None:
        now, n = self.now, max(0, self.now.n - back)
        segment = now.segments[n]
        owned = (segment.engine, segment.executor) == ("PENDING", worker)
        open_ = now.state in ("queued", "running", "cancelling")
        there = n == now.n and segment.outcome is None and open_ and owned

        async def body(session: Session) -> Any:
            return await segments.begin(
                session,
                run_id=self.run_id,
                n=n,
                worker_id=worker,
                serving=SERVING,
                stalls_max=STALLS_MAX,
            )

        if there and worker in self.dead:
            assert self.raised(body, Fenced, tenant=None)
            return
        begun = self.commit(body, dies=dies, tenant=None)
        stalls = 0 if now.steps > now.steps_seen else now.stalls + (segment.executions > 0)
        stopping = now.state == "cancelling"
        assert (begun is not None) == (there and not stopping and stalls < STALLS_MAX)
        if dies or not there:
            return
        if stopping:
            now.settle("cancelled")
            now.state = "cancelled"
            return
        if begun is None:
            now.settle("held")
            now.state = "held"
            return
        if segment.answers is None:
            segment.answers = now.answers()
        now.state, now.generation, now.stalls, now.steps_seen = "running", now.generation + 1, stalls, now.steps
        segment.executions += 1
        assert begun.execution.generation == now.generation
        assert {call_id: answer["go"] for call_id, answer in begun.frozen["answers"].items()} == segment.answers
        self.executions.append(begun.execution)

    @precondition(lambda self: self.executions)
    @rule(back=st.integers(0, 2), turn=st.booleans(), dies=seldom)
    def step(self, back: int, turn: bool, dies: bool) -> None:
        """What an execution records of its work, in the middle of it or long after it was fenced."""
        execution, now = self.mine(back), self.now

        async def body(session: Session) -> bool:
            if turn:
                await segments.record_turn(session, execution, turns=now.turns + 1, usage={})
            else:
                await record_steps(session, execution, [StepRow(now.steps, "step", "ran", NOW, NOW)])
            return await number_done(session, execution, Event("step.done"))

        if not self.holds(execution):
            assert self.raised(body, Fenced)
            return
        assert self.commit(body, dies=dies) == (now.state == "running")
        if not dies:
            now.turns += turn
            now.steps += not turn

    @precondition(lambda self: self.executions and len(self.now.calls) < 4)
    @rule(back=st.integers(0, 1), dies=seldom)
    def call(self, back: int, dies: bool) -> None:
        """An effect is prepared and sent, and not answered yet."""
        execution, position = self.mine(back), len(self.now.calls)
        if not self.may_begin(execution):

            async def stale(session: Session) -> None:
                await self.scene.prepare(session, execution, self.scene.request(execution, position, gated=False))
                await number_fenced(session, execution, Event("action.prepared"))

            assert self.raised(stale, Cancelling if self.holds(execution) else Fenced)
            return
        wait = self.commit(lambda s: self.scene.call(s, execution, position, "delivery"), dies=dies)
        assert wait is not None
        if not dies:
            self.now.calls.append(Call(position, wait))

    @precondition(lambda self: self.now.calls)
    @rule(which=st.integers(0, 3), dies=seldom)
    def receive(self, which: int, dies: bool) -> None:
        """A fact: accepted at any time, and once more without a difference."""
        call = self.now.calls[which % len(self.now.calls)]
        self.commit(
            lambda s: receipts.receive(
                s, call.wait.action_id, attempt=1, source="answer", result="done", worker_id=ADA
            ),
            dies=dies,
        )
        if dies or call.settled:
            return
        call.settled = True
        if call.segment is not None and call.outcome is None:
            call.outcome = "go"
        self.now.wake()

    @precondition(lambda self: self.executions)
    @rule(back=st.sampled_from((0, 0, 1)), how=st.sampled_from(["waiting", "waiting", "queued", "completed", "failed"]),
          dies=seldom)  # fmt: skip
    def end(self, back: int, how: str, dies: bool) -> None:
        execution, now = self.mine(back), self.now
        new = [call for call in now.calls if call.segment is None]
        ending = Ending(
            state=RunState(how),  # type: ignore[arg-type]
            turns=now.turns,
            usage={},
            reason="failed" if how == "failed" else None,
            waits=[call.wait for call in new] if how == "waiting" else (),
        )

        async def body(session: Session) -> bool:
            return await segments.end(session, execution, ending)

        if not self.holds(execution):
            if execution.generation == now.generation and now.segments[execution.segment].outcome is not None:
                assert self.commit(body) is False  # the answer to its commit was lost
            else:
                assert self.raised(body, Fenced)
            return
        woken = self.commit(body, dies=dies)
        if now.state == "cancelling":
            assert woken is False
            if not dies:
                now.settle("cancelled")
                now.state = "cancelled"
            return
        if how in ("completed", "failed") and any(not call.settled for call in now.calls):
            how = "held"
        still = how == "waiting" and any(not call.settled for call in new)
        assert woken == (how in ("waiting", "queued") and not still)
        if dies:
            return
        for call in new if how == "waiting" else ():
            call.segment, call.outcome = now.n, "go" if call.settled else None
        now.settle(how)
        now.state = "waiting" if how == "queued" else how
        now.wake()

    # The watchdog.

    @rule(worker=workers, dies=seldom)
    def bury(self, worker: WorkerId, dies: bool) -> None:
        self.rows("update surefoot.workers set state = 'dead', ended_at = now() where worker_id = %s", worker)
        self.dead.add(worker)
        self.commit(lambda s: registry.raise_generations(s, worker, limit=10**6), dies=dies, tenant=None)
        segment = self.now.segment
        pending = (segment.engine, segment.executor, segment.outcome) == ("PENDING", worker, None)
        if pending and self.now.state in ("running", "cancelling") and not dies:
            self.now.generation += 1

    @precondition(lambda self: self.dead)
    @rule()
    def live(self) -> None:
        """No worker lives again: it saves the machine more names."""
        worker = self.dead.pop()
        self.rows("update surefoot.workers set state = 'live', ended_at = null where worker_id = %s", worker)

    @precondition(lambda self: any(segment.engine == "ERROR" for segment in self.now.segments))
    @rule(back=st.sampled_from((0, 0, 1)), dies=seldom)
    def restart_lost(self, back: int, dies: bool) -> None:
        now, n = self.now, max(0, self.now.n - back)
        lost = n == now.n and now.state in ("queued", "running", "cancelling") and now.segment.engine == "ERROR"
        restarted = self.commit(
            lambda s: segments.restart_lost(s, run_id=self.run_id, n=n, why="a test", stalls_max=STALLS_MAX),
            dies=dies,
            tenant=None,
        )
        assert restarted == lost
        if dies or not lost:
            return
        if now.state == "cancelling":
            now.settle("lost")
            now.state = "cancelled"
            return
        if now.stalls + 1 >= STALLS_MAX:
            now.settle("held")
            now.state = "held"
            return
        now.settle("lost")
        now.stalls, now.generation = now.stalls + 1, now.generation + 1
        now.next()

    # People.

    @rule(really=seldom, dies=seldom)
    def cancel(self, really: bool, dies: bool) -> None:
        if not really:
            return

        async def body(session: Session) -> None:
            await runs.cancel(session, self.run_id, by="ada", reason="asked for")

        if self.now.state in ("completed", "failed"):
            assert self.raised(body, Conflict)
            return
        self.commit(body, dies=dies)
        if dies or self.now.state == "cancelling":
            return
        if self.now.state == "running":
            self.now.state = "cancelling"
        else:
            self.now.settle("cancelled")
            self.now.state = "cancelled"
            for call in self.now.calls:
                if call.segment is not None and call.outcome is None:
                    call.outcome = "denied"

    @rule(really=seldom, dies=seldom)
    def release(self, really: bool, dies: bool) -> None:
        if not really and self.now.state != "held":
            return

        async def body(session: Session) -> None:
            await runs.release(session, self.run_id, by="ada")

        if self.now.state != "held":
            assert self.raised(body, Conflict)
            return
        self.commit(body, dies=dies)
        if not dies:
            self.now.stalls = 0
            self.now.next()

    @invariant()
    def both_say_the_same(self) -> None:
        seen, now = self.loop.run(self.scene.seen(self.run_id)), self.now
        invariants.consistent(seen)
        assert (seen["state"], seen["segment"], seen["generation"]) == (now.state, now.n, now.generation)
        assert (seen["stalls"], seen["turns"]) == (now.stalls, now.turns)
        kept = [(row["outcome"], row["executions"], row["turns"] or 0) for row in seen["segments"]]
        assert kept == [(s.outcome, s.executions, s.turns) for s in now.segments]
        engine = {row["id"]: row["status"] for row in seen["engine"]}
        assert engine == {f"{self.run_id}:{n}": s.engine for n, s in enumerate(now.segments)}
        waited = {row["action_id"]: (row["segment"], row["outcome"]) for row in seen["waits"]}
        calls = [call for call in now.calls if call.segment is not None]
        assert waited == {call.wait.action_id: (call.segment, call.outcome) for call in calls}


def test_runs_do_what_their_model_says(database_url: str) -> None:
    search(Runs, database_url, examples=30)


@pytest.mark.parametrize(
    ("modules", "table", "name", "guard", "instead"),
    [
        ([events], "runs", "number_fenced_or_cancelling", "and generation = :generation", ""),
        ([events], "runs", "number_fenced", "and state = 'running'", "and state in ('running', 'cancelling')"),
        ([cancelling], "runs", "end_if_cancelling", "state = 'cancelled'", "state = 'cancelling'"),
        ([stopping], "runs", "raise_segment_after_loss", "generation = generation + 1,", ""),
        ([registry], "runs", "raise_generations_of_dead", "generation = generation + 1", "generation = generation"),
        ([segments], "segments", "owned_by_executor", "and executor_id = :worker_id", ""),
        ([segments], "segments", "owned_by_executor", "and w.state = 'live'", ""),
        ([waits], "waits", "count_open", "and state = 'open'", "and false"),
    ],
)  # fmt: skip
def test_the_model_misses_each_guard(
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    modules: Any,
    table: str,
    name: str,
    guard: str,
    instead: str,
) -> None:
    is_missed(Runs, database_url, monkeypatch, modules, f"_{table.upper()}", changed(table, (name, guard, instead)))
