"""Effects that the relay brings are driven some at a time."""

import asyncio
from typing import Any, cast

from steps.bench import Bench
from steps.effects import Effects
from transactions import DEFAULT_TENANT, ActionId, WorkerId
from transactions.actions import Ticket


class Slow(Effects):
    """Drives each until it is let go; how many there are at once is counted."""

    def __init__(self, at_once_max: int) -> None:
        super().__init__(cast(Bench, None), at_once_max=at_once_max)
        self.driven = self.most = 0
        self.go = asyncio.Event()

    async def drive(self, *_: Any) -> None:
        self.driven += 1
        self.most = max(self.most, self.driven)
        await self.go.wait()
        self.driven -= 1


async def test_no_more_than_there_is_room_for_are_driven_at_once() -> None:
    effects = Slow(2)
    tickets = [Ticket(ActionId(f"run/1/{n}:send"), 1, WorkerId("ada")) for n in range(5)]
    starting = [asyncio.create_task(effects.start_when_there_is_room(ticket, DEFAULT_TENANT)) for ticket in tickets]
    await asyncio.sleep(0.05)
    assert effects.driven == 2
    effects.go.set()
    await asyncio.gather(*starting)
    await effects.drain(5)
    assert (effects.driven, effects.most) == (0, 2)
