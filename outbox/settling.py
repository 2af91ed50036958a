"""Settles what has ended: whatever ends while one commit is under way is settled together in the next one."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outbox.outcomes import Delivered, Undelivered
from transactions import Database, outbox, subscriptions, until_committed
from transactions.outbox import Delivery, End

_TOGETHER_MAX = 200
_AGAIN_S_MAX = 30 * 86400.0  # whatever the other side says


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One end, and who waits to hear whether its attempt still held the claim."""

    end: End
    pause_s: float  # for which the whole consumer is left alone
    held: asyncio.Future[bool]


class Settling:
    """`settle` returns when the outcome is committed. What one of them raises concerns that one alone."""

    def __init__(self, database: Database, still_mine: Callable[[], None], *, backoff_s_max: float) -> None:
        self._database = database
        self._still_mine = still_mine
        self._backoff_s_max = backoff_s_max
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def settle(self, delivery: Delivery, outcome: Delivered | Undelivered) -> bool:
        """Whether this attempt still held the claim. Raises Fenced, and why this one alone cannot be stored."""
        pause_s = _asked_for(outcome) if isinstance(outcome, Undelivered) else 0.0
        one = _Waiting(self._end(delivery, outcome), pause_s, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="settling of deliveries")
        return await one.held

    async def stop(self) -> None:
        """Give up what is not committed: its claim is left to its lease."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for one in self._waiting:
            one.held.cancel()
        self._waiting.clear()

    def _end(self, delivery: Delivery, outcome: Delivered | Undelivered) -> End:
        if isinstance(outcome, Delivered):
            return End(delivery, "delivered", outcome.detail, outcome.receipt)
        if outcome.final or delivery.attempt >= delivery.attempts_max:
            return End(delivery, "dead", outcome.detail)
        pause_s = min(0.5 * 2.0 ** min(delivery.tries, 20), self._backoff_s_max)
        return End(delivery, "pending", outcome.detail, pause_s=max(pause_s, _asked_for(outcome)))

    async def _work(self) -> None:
        while self._waiting:
            together, self._waiting = self._waiting[:_TOGETHER_MAX], self._waiting[_TOGETHER_MAX:]
            await self._settled(together)

    async def _settled(self, together: Sequence[_Waiting]) -> None:
        try:
            held = await until_committed(lambda: self._store(together), self._still_mine)
        except Exception as error:
            if len(together) > 1:  # one of them cannot be stored, and the others can
                for one in together:
                    await self._settled([one])
            else:
                _tell(together, error)
        except asyncio.CancelledError:
            self._waiting[:0] = together
            raise
        except BaseException as error:  # fenced: nothing of this worker counts any more
            _tell(together, error)
        else:
            for one in together:
                if not one.held.done():
                    delivery = one.end.delivery
                    one.held.set_result((delivery.entry_id, delivery.consumer, delivery.attempt) in held)

    async def _store(self, together: Sequence[_Waiting]) -> frozenset[tuple[str, str, int]]:
        async with self._database.all_tenants("relay.settle") as session:
            held = await outbox.settle(session, [one.end for one in together])
            for one in sorted(together, key=lambda one: one.end.delivery.consumer):  # as claims lock them
                if one.pause_s > 0:
                    await subscriptions.pause(
                        session, one.end.delivery.consumer, pause_s=one.pause_s, why=one.end.detail or "no reason given"
                    )
            return held


def _asked_for(outcome: Undelivered) -> float:
    """Seconds; a number that is none is no wish."""
    return min(max(0.0, outcome.again_s), _AGAIN_S_MAX) if outcome.again_s > 0 else 0.0


def _tell(together: Sequence[_Waiting], error: BaseException) -> None:
    for one in together:
        if not one.held.done():
            one.held.set_exception(error)
