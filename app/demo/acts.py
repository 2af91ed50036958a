"""The story, act by act. Every kill is a real SIGKILL, and a new process goes on."""

import signal

from app.demo.kills import COMMITTED, COMMITTED_PASSAGE, PUBLISHED, WAITING
from app.demo.scene import MANAGER, READY, Scene
from app.demo.stage import Child, DemoFailed, until

READER_PATIENCE_S = 24 * 3600.0
EDITED = "\nRead and edited by the manager.\n"


def plain_loop(scene: Scene) -> None:
    """The problem: killed after the publishing service has committed, and started again."""
    request = scene.input.request(0)
    arguments = ["--month", request["month"], "--reference", scene.plain_reference]
    arguments += ["--data", request["data"]] if "data" in request else []
    first = scene.stage.plain_loop(arguments, PUBLISHED)
    if first.until_dead() != -signal.SIGKILL:
        raise DemoFailed(f"The demo stopped: {first.name} was not killed: {first.last_words()}")
    scene.tell(f"pid {first.pid} was killed (SIGKILL) right after the service had committed; starting it again")
    second = scene.stage.plain_loop(arguments)
    if second.until_dead() != 0:
        raise DemoFailed(f"The demo stopped: {second.name} failed: {second.last_words()}")
    published = sum(row.reference == scene.plain_reference for row in scene.stage.publications())
    scene.tell(f"pid {second.pid} began at the beginning and finished: the service has {published} publications")


def three_kills(scene: Scene, *, hold: bool, edit: bool) -> None:
    """Surefoot killed at its three worst moments."""
    first = scene.stage.worker(f"{COMMITTED}:{COMMITTED_PASSAGE}")
    first.until_said(READY)
    if not scene.start_run(first):
        raise DemoFailed(f"The demo stopped: the run could not be started: {first.last_words()}")
    scene.tell(f"run {scene.run.run_id} started through the API of worker pid {first.pid}")
    first.until_dead()
    _killed(scene, first, "it had committed the saved report, and the step was not recorded yet")
    second = scene.stage.worker()
    second.until_said(READY)
    scene.until_state("waiting")
    scene.tell(f"pid {second.pid} went on; the run waits for the approval of a manager, and the mailbox is empty")
    second.kill()
    scene.note_kill(second, WAITING)
    scene.tell(f"pid {second.pid} was killed (SIGKILL) {WAITING}")
    if edit:
        _edit(scene)
    third = scene.stage.worker(f"{PUBLISHED}:1:stop" if hold else PUBLISHED)
    third.until_said(READY)
    if not edit:
        if not scene.approve():
            raise DemoFailed(f"The demo stopped: the approval could not be given: {third.last_words()}")
        scene.tell(f"approved as {MANAGER}, in the role of manager")
    if hold:
        _hold(scene, third)
    third.until_dead()
    _killed(scene, third, "the publishing service had committed, and the answer was not recorded yet")
    finish(scene)


def _edit(scene: Scene) -> None:
    """While no worker lives: approved as it is, and then with another ending. The first approval is not used."""
    if not scene.approve():
        raise DemoFailed("The demo stopped: the approval could not be given.")
    scene.tell(f"the report is approved as {MANAGER}, while no worker lives; now the manager edits its text")
    scene.edit(EDITED)
    scene.tell(
        "its next version is saved, bound and approved in one commit; the approval of the one before is superseded"
    )


def _hold(scene: Scene, worker: Child) -> None:
    """Until the reader has killed the worker, which has stopped itself at "published, not recorded"."""
    until("the worker stops after publishing", lambda: scene.stage.struck(worker))
    published = len([row for row in scene.stage.publications() if row.reference.startswith(scene.run.run_id)])
    recorded = scene.records.value(
        "select count(*) from surefoot.receipts where starts_with(action_id, :r || '/') and source <> 'transaction'",
        r=scene.run.run_id,
    )
    scene.tell(f"published, not recorded: the publishing service has {published} publication of this run, and Surefoot")
    scene.tell(f"has {recorded} receipts for it. The worker stands still there. In another terminal, type")
    scene.tell("")
    scene.tell(f"    kill -9 {worker.pid}")
    scene.tell("")
    worker.until_dead(patience_s=READER_PATIENCE_S)


def finish(scene: Scene, **env: str) -> None:
    """A worker that nobody kills carries the run to its end, delivers what is left, and stops in good order."""
    worker = scene.stage.worker(None, **env)
    worker.until_said(READY)
    if not scene.records.is_approved(scene.run.run_id):
        scene.until_state("waiting")
        scene.approve()
    scene.until_state("completed")
    until(f"everything of run {scene.run.run_id} is delivered", lambda: scene.records.is_inert(scene.run.run_id))
    worker.stop()
    scene.tell(f"pid {worker.pid} went on and finished the run")


def _killed(scene: Scene, worker: Child, what: str) -> None:
    point = scene.stage.struck(worker)
    if point is None:
        raise DemoFailed(f"The demo stopped: {worker.name} ended without a kill: {worker.last_words()}")
    scene.note_kill(worker, point)
    scene.tell(f"pid {worker.pid} was killed (SIGKILL) at {point}: {what}")
