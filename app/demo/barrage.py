"""Kills at random: each worker dies at a random passage of any failpoint, until so many struck an unfinished run."""

import random
import signal
import time
from dataclasses import dataclass

from app.demo.kills import before_approval, passage
from app.demo.scene import MANAGER, READY, Scene
from app.demo.stage import LOOK_EVERY_S, Child, DemoFailed

STALLS_MAX = "10000"
ENDED_BY_ITSELF_MAX = 3


@dataclass(slots=True)
class Barrage:
    """`approve_at`: the manager approves once so many kills have struck, because a run that waits cannot finish."""

    scene: Scene
    kills: int
    draw: random.Random
    approve_at: int = 0
    ended_by_itself: int = 0

    def play(self) -> None:
        """Raises DemoFailed when a run ends otherwise than completed, or workers end by themselves."""
        while len(self.scene.kills) < self.kills:
            armed = passage(self.draw, may_finish=self._may_finish())
            worker = self.scene.stage.worker(f"*:{armed}", SUREFOOT_STALLS_MAX=STALLS_MAX)
            while worker.wait_status() is None:
                self._look(worker)
                time.sleep(LOOK_EVERY_S)
            self._count(worker, armed)

    def _may_finish(self) -> bool:
        """Whether the run on stage is approved, or is about to be."""
        return bool(self.scene.runs) and (self._is_approved() or self._is_due())

    def _is_due(self) -> bool:
        waits = self.scene.records.state(self.scene.run.run_id) == "waiting"
        return waits and len(self.scene.kills) >= self.approve_at and not self._is_approved()

    def _is_approved(self) -> bool:
        return self.scene.records.is_approved(self.scene.run.run_id)

    def _look(self, worker: Child) -> None:
        """Start a run when none is under way, and approve it when it is time."""
        scene = self.scene
        if not scene.runs or scene.records.is_over(scene.run.run_id):
            if worker.said(READY) is not None and scene.start_run(worker):
                self.approve_at = len(scene.kills) + before_approval(self.kills - len(scene.kills))
                scene.tell(f"run {scene.run.run_id}, a report on {scene.run.month}, started")
            return
        state = scene.records.state(scene.run.run_id)
        if state in ("failed", "cancelled", "held"):
            scene.fail_for(state)
        if self._is_due() and scene.approve():
            scene.tell(f"approved as {MANAGER}, in the role of manager")

    def _count(self, worker: Child, armed: int) -> None:
        """Write the kill down if it struck an unfinished run."""
        scene, point = self.scene, self.scene.stage.struck(worker)
        if point is None or worker.wait_status() != -signal.SIGKILL:
            self.ended_by_itself += 1
            scene.tell(f"pid {worker.pid} ended by itself with {worker.wait_status()}: {worker.last_words()}")
            if self.ended_by_itself >= ENDED_BY_ITSELF_MAX:
                raise DemoFailed(f"The demo stopped: {worker.name} ended by itself: {worker.last_words()}")
            return
        if not scene.runs or scene.records.is_over(scene.run.run_id):
            scene.tell(f"pid {worker.pid} was killed at {point} while no run was unfinished: not counted")
            return
        scene.note_kill(worker, point)
        scene.tell(f"kill {len(scene.kills)} of {self.kills}: pid {worker.pid} at {point}, passage {armed}")


def random_kills(scene: Scene, *, kills: int, seed: int) -> None:
    """Play it, and let the last run be finished by whoever comes next."""
    scene.tell(f"{kills} kills at random failpoints, seed {seed}. The limit on deaths without progress, after which a")
    scene.tell(f"run is put aside for a person, is raised for this: SUREFOOT_STALLS_MAX={STALLS_MAX}")
    Barrage(scene, kills, random.Random(seed)).play()
