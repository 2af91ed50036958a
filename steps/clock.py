"""The one door for time and for new ids, so that tests can move them."""

import time
import uuid
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time with UTC offset, monotonic seconds, and ids that nobody else has."""

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    def new_id(self) -> str: ...


class SystemClock:
    """The machine's own clock and random ids."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self) -> str:
        return uuid.uuid4().hex
