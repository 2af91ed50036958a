"""What is removed, over random histories of a few runs, against a model of what is still needed; each guard taken
away.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests import retained
from tests.model.machines import Model, changed, is_missed, search
from tests.races.scenes import Scene
from tests.retained import FLAWS, KEYS_S, Flaw, Made
from transactions import RunState, removal
from transactions.retention import FOREVER

RUNS_MAX = 4
KEYS: tuple[Flaw, ...] = ("business key", "idempotency key")
NEEDED = ("key", "request", "input")


@dataclass
class Kept:
    """What the model says of a run. `needs`: the runs of which it relies on or refers to something."""

    made: Made
    flaws: set[Flaw] = field(default_factory=lambda: {"it is not over"})
    needs: set[int] = field(default_factory=set)
    given: bool = False
    there: bool = True


class Retained(Model):
    """A few runs, which rely on each other; now and then everything that is old enough is removed."""

    def __init__(self, scene: Scene, loop: asyncio.Runner, flaw: Flaw | None = None, needed: str | None = None) -> None:
        super().__init__(scene, loop)
        self.runs: list[Kept] = []
        self.flaw, self.needed = flaw, needed

    @initialize(flaw=st.sampled_from(FLAWS), needed=st.sampled_from(NEEDED))
    def set_out(self, flaw: Flaw, needed: str) -> None:
        """One run that only this keeps, one that another one needs, and that, which goes on."""
        for _ in range(3):
            self.begin()
        self.rely(2, 1, self.needed or needed)
        for which in (0, 1):
            self.end(which, RunState.COMPLETED)
        self.retain(KEYS_S)
        for which in (0, 1):
            self.age(which)
        self.spoil(0, self.flaw or flaw)
        self.retain(KEYS_S if self.flaw not in KEYS else FOREVER)

    @precondition(lambda self: sum(run.there for run in self.runs) < RUNS_MAX)
    @rule()
    def begin(self) -> None:
        self.runs.append(Kept(self.loop.run(retained.begun(self.scene))))

    def which(self, number: int, *, goes_on: bool | None = None) -> Kept | None:
        run = self.runs[number % len(self.runs)]
        return run if run.there and goes_on in (None, "it is not over" in run.flaws) else None

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, 7), other=st.integers(0, 7), how=st.sampled_from(NEEDED))
    def rely(self, which: int, other: int, how: str) -> None:
        """It shares an action of the other by its key; or asks for something, or was started, with an artifact of
        it.
        """
        run, of = self.which(which, goes_on=True), self.which(other)
        if run is None or of is None or run is of:
            return
        reference = of.made.artifact
        assert reference is not None
        if how == "key":
            if "business key" not in of.flaws:
                if "it is not over" not in of.flaws:
                    return
                assert self.loop.run(retained.asked(self.scene, of.made, of.made.run_id))
                of.flaws.add("business key")
            if self.loop.run(retained.asked(self.scene, run.made, of.made.run_id)):
                run.flaws.add("business key")  # the other one's was not asked for by this name
                return
        elif how == "request":
            self.loop.run(retained.effect(self.scene, run.made, {"report": reference.model_dump()}))
        elif run.given:
            return
        else:
            self.loop.run(retained.given(self.scene, run.made, reference))
            run.given = True
        run.needs.add(self.runs.index(of))

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, 7), state=st.sampled_from((RunState.COMPLETED, RunState.FAILED)))
    def end(self, which: int, state: RunState) -> None:
        if (run := self.which(which, goes_on=True)) is not None:
            self.loop.run(retained.over(self.scene, run.made, state))
            run.flaws = (run.flaws - {"it is not over"}) | {"it is young"}

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, 7))
    def age(self, which: int) -> None:
        if (run := self.which(which, goes_on=False)) is not None:
            self.loop.run(retained.aged(self.scene, run.made))
            run.flaws.discard("it is young")

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, 7), flaw=st.sampled_from(FLAWS))
    def spoil(self, which: int, flaw: Flaw) -> None:
        if (run := self.which(which, goes_on=False)) is not None:
            self.loop.run(retained.spoil(self.scene, run.made, flaw))
            run.flaws.add(flaw)

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, 7))
    def mend(self, which: int) -> None:
        """Whatever it was is settled; but a business key stays one."""
        if (run := self.which(which, goes_on=False)) is not None:
            for flaw in run.flaws - {"it is young", "business key"}:
                self.loop.run(retained.spoil(self.scene, run.made, flaw, there=False))
            run.flaws &= {"it is young", "business key"}

    @precondition(lambda self: self.runs)
    @rule(keys_s=st.sampled_from((FOREVER, KEYS_S)))
    def retain(self, keys_s: float) -> None:
        going = self.going(keys_s)
        self.loop.run(retained.removing(self.scene, keys_s))
        for n in going:
            self.runs[n].there = False
        self.both_say_the_same()

    def going(self, keys_s: float) -> set[int]:
        """Those of which nothing is left to do, and that nobody needs who stays."""
        harmless = set() if keys_s == FOREVER else set(KEYS)
        going = {n for n, run in enumerate(self.runs) if run.there and not run.flaws - harmless}
        while True:
            needed = {need for n, run in enumerate(self.runs) if run.there and n not in going for need in run.needs}
            if not needed & going:
                return going
            going -= needed

    @invariant()
    def both_say_the_same(self) -> None:
        there = self.loop.run(retained.ids(self.scene))
        for run in self.runs:
            assert (run.made.run_id in there) == run.there, f"{run}"


def test_what_is_removed_is_what_nothing_needs_any_more(database_url: str) -> None:
    search(Retained, database_url, examples=8)


# What each flaw, and each way to need another run, is seen by.
GUARDS: dict[Flaw, tuple[str, str]] = {
    "unsettled": ("unfinished", "a.settled_at is null"),
    "may be answered": ("unfinished", "t.deadline_at > statement_timestamp()"),
    "contradicted": ("unfinished", "c.contradiction is not null"),
    "undelivered": ("unfinished", "d.state not in ('delivered', 'discarded')"),
    "pending": ("unfinished", "p.state = 'pending'"),
    "open segment": ("unfinished", "s.state <> 'settled'"),
    "in the engine": (
        "unfinished",
        "d.status not in ('SUCCESS', 'ERROR', 'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED')",
    ),
    "business key": ("keyed", "c.run_id = r.run_id and surefoot.is_kept("),
    "idempotency key": ("keyed", "r.idempotency_key is not null"),
    "counted start": ("referred_to", "l.starts_max is not null"),
    "superseded": ("referred_to", "not o.run_id = any(:run_ids)"),
}
NEEDS = {
    "request": "m.request @? '$.**.sha256'",
    "input": "m.input @? '$.**.sha256'",
}


def without(name: str, guard: str) -> Any:
    return changed("removal", (name, guard, f"false and {guard}"))


@pytest.mark.parametrize("flaw", GUARDS)
def test_without_the_guard_it_is_missed(database_url: str, monkeypatch: pytest.MonkeyPatch, flaw: Flaw) -> None:
    machine: Any = partial(Retained, flaw=flaw)
    is_missed(machine, database_url, monkeypatch, [removal], "_REMOVAL", without(*GUARDS[flaw]), examples=1)


@pytest.mark.parametrize("needed", NEEDS)
def test_without_looking_who_refers_to_it_it_is_missed(
    database_url: str, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    machine: Any = partial(Retained, flaw="unsettled", needed=needed)
    gone = without("referred_to", NEEDS[needed])
    is_missed(machine, database_url, monkeypatch, [removal], "_REMOVAL", gone, examples=1)


def test_without_its_age_it_is_missed(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = changed(
        "removal", ("ended", "ended_at <= statement_timestamp() - make_interval(secs => :keep_s)", ":keep_s > 0")
    )
    is_missed(Retained, database_url, monkeypatch, [removal], "_REMOVAL", spoilt, examples=1)
