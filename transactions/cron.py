"""When a cron expression is due, by the clock of a time zone.

As Debian's cron has it: a time that the clock leaves out is due when it goes on, and one that it shows twice is due
once. Not so with a star in the minute or the hour: that is due at what the clock shows, never or twice.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from transactions.errors import InvalidInput

_FIELDS = 5
_CHARACTERS_MAX = 200
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
# How far back the last time is looked for, nearest first: an expression may be due every minute, or once in 4 years.
_BACK = (timedelta(hours=1), timedelta(days=1), timedelta(days=31), timedelta(days=366))


def check(cron: str, time_zone: str) -> None:
    """Raises InvalidInput for what is no cron expression of five fields, is never due, or names no time zone."""
    if len(cron) > _CHARACTERS_MAX:
        raise InvalidInput(
            f"The cron expression has {len(cron)} characters, and {_CHARACTERS_MAX} may be: write ranges and steps, "
            "such as '*/5 8-17 * * *', or several schedules."
        )
    if len(cron.split()) != _FIELDS:
        raise InvalidInput(
            f"{cron[:100]!r} has not five fields: write minute, hour, day of month, month and day of week, "
            "such as '0 9 * * MON-FRI'."
        )
    try:
        next(CronSim(cron, _SOME_DAY))
    except CronSimError as error:
        raise InvalidInput(f"{cron[:100]!r} is no cron expression: {str(error).lower()}. Correct it.") from None
    except StopIteration:
        raise InvalidInput(f"{cron[:100]!r} is never due: correct it.") from None
    try:
        ZoneInfo(time_zone)
    except (ValueError, OSError, LookupError):  # the last one is for a zone that there is not
        raise InvalidInput(
            f"{time_zone[:100]!r} is no time zone: write one of the IANA database, such as Europe/Berlin."
        ) from None


def due_after(cron: str, time_zone: str, after: datetime) -> Iterator[datetime]:
    """Each time it is due after that moment, in UTC, in order. For what `check` has let pass."""
    last = after
    for local in CronSim(cron, after.astimezone(ZoneInfo(time_zone))):
        at = local.astimezone(UTC)
        if at > last:  # it counts by the clock on the wall, which is put back, and on which several times may be one
            last = at
            yield at


def next_after(cron: str, time_zone: str, after: datetime) -> datetime | None:
    """None: never again."""
    return next(due_after(cron, time_zone, after), None)


def last_due(cron: str, time_zone: str, *, first: datetime, until: datetime) -> datetime:
    """The last time it is due up to `until`, where `first` is such a time."""
    for back in _BACK:
        since = max(first, until - back)
        found = list(takewhile(lambda at: at <= until, due_after(cron, time_zone, since)))
        if found or since == first:
            return found[-1] if found else first
    return first
