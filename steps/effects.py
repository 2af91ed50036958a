"""Drive one effect to its end from rows alone: claim, send, receive; verify what is unknown before sending again.

The segment that asked and the relay of any worker call the same `drive`; who holds the ticket acts, the others wait.
"""

import asyncio
import logging

from steps import sending, verifying
from steps.bench import Bench
from steps.drive import Claimed, Drive, Unreadable
from steps.sharing import wake_sharers
from transactions import ActionState, Fenced, Tenant, failures, outbox, until_committed
from transactions.actions import Ticket

_log = logging.getLogger("surefoot.effects")
_PUT_OFF_S = 30.0
_LEFT_S = 2.0  # soon: the worker that can take it may be the next to look
_CANCEL_S = 5.0
AT_ONCE_MAX = 50


class Effects:
    """Drives effects under tickets. Tasks it started belong to it; `drain()` waits for them."""

    def __init__(self, bench: Bench, *, at_once_max: int = AT_ONCE_MAX) -> None:
        self._bench = bench
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(at_once_max)

    async def start_when_there_is_room(self, ticket: Ticket, tenant: Tenant) -> None:
        """For the relay, which keeps the claim meanwhile: at most `at_once_max` of its effects are driven at once."""
        await self._room.acquire()
        self.start(ticket, tenant).add_done_callback(lambda _: self._room.release())

    def start(self, ticket: Ticket, tenant: Tenant, claimed: Claimed | None = None) -> asyncio.Task[None]:
        """Drive in the background, so that who waits for it may stop waiting and the effect goes on."""
        task = asyncio.create_task(self.drive(ticket, tenant, claimed), name=f"effect {ticket.action_id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Fenced):
            self._bench.on_fenced(str(error))
        elif error is not None:
            _log.error("%s failed; its delivery brings it back", task.get_name(), exc_info=error)

    async def until_idle(self, timeout_s: float) -> None:
        """Until nothing is on its way any more, for `timeout_s` at most."""
        ends_at = asyncio.get_running_loop().time() + timeout_s
        while self._tasks and (left_s := ends_at - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._tasks, timeout=left_s)

    async def drain(self, timeout_s: float) -> None:
        """Wait for what is on its way, then give up the rest: its outcome is unknown, and is verified elsewhere."""
        await self.until_idle(timeout_s)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CANCEL_S)  # nobody can end one that does not heed it

    async def drive(self, ticket: Ticket, tenant: Tenant, claimed: Claimed | None = None) -> None:
        """While the ticket is ours: until the action is settled, a person is needed, or the schedule has it again.

        claimed: when the caller has just claimed it in its own commit.
        """
        try:
            await self._drive(await Drive.load(self._bench, ticket, tenant), claimed)
        except Unreadable as error:
            await self._put_off(ticket, tenant, str(error), pause_s=_LEFT_S)
        except Exception as error:
            await self._put_off(ticket, tenant, f"it cannot be driven: {failures.words(error)}", pause_s=_PUT_OFF_S)
            raise

    async def _drive(self, drive: Drive, claimed: Claimed | None) -> None:
        if claimed is not None:
            await sending.send(drive, claimed)
        while await drive.renew():
            row = await drive.row()
            state = ActionState(row["state"])
            if state.settled:  # its entry was delivered again: nothing is asked of anybody
                await drive.close(row)
            elif state is ActionState.PREPARED:
                await sending.claim_and_send(drive, row)
            else:
                await verifying.resolve(drive, row)
        self._bench.wakeups.poke("actions")
        if drive.spec.key is not None:
            await until_committed(lambda: wake_sharers(self._bench.database), self._bench.still_mine)
        if drive.spec.undoes:
            self._bench.wakeups.poke("outbox")  # the next one of its run may go

    async def _put_off(self, ticket: Ticket, tenant: Tenant, why: str, *, pause_s: float) -> None:
        """Back to the schedule, which says why: its deps, its tool or its approval's binding raise."""

        async def once() -> None:
            async with self._bench.database.transaction("effect.put_off", tenant) as session:
                await outbox.give_back_effect(
                    session,
                    ticket.action_id,
                    attempt=ticket.attempt,
                    worker_id=ticket.worker_id,
                    pause_s=pause_s,
                    detail=why,
                )

        await until_committed(once, self._bench.still_mine)
