"""When a schedule is due: also on the days on which the clock is put forward and back; and what is none is refused."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile

import pytest

from transactions import InvalidInput, cron

BERLIN = "Europe/Berlin"
# The clock goes from 2 to 3 on the first day, and from 3 back to 2 on the second.
FORWARD, BACK = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)


def due(expression: str, after: datetime) -> list[str]:
    """In UTC, from three hours before that midnight, for a day."""
    since = after - timedelta(hours=3)
    until = since + timedelta(days=1)
    return [f"{at:%d %H:%M}" for at in takewhile(lambda at: at <= until, cron.due_after(expression, BERLIN, since))]


@pytest.mark.parametrize(
    ("expression", "times"),
    [
        ("30 2 * * *", ["29 01:00"]),  # there is no 2:30: when the clock goes on, at 3:00
        ("0,30 2,3 * * *", ["29 01:00", "29 01:30"]),  # and 2:00, 2:30 and 3:00 are one
        ("0 3 * * *", ["29 01:00"]),
        ("*/20 2 * * *", []),  # but with a star at what the clock shows
        ("30 */1 * * *", [f"{d} {h:02}:30" for d, h in [(28, n) for n in (21, 22, 23)] + [(29, n) for n in range(21)]]),
    ],
)
def test_a_time_that_the_clock_leaves_out_is_due_when_it_goes_on(expression: str, times: list[str]) -> None:
    assert due(expression, FORWARD) == times


@pytest.mark.parametrize(
    ("expression", "times"),
    [
        ("30 2 * * *", ["25 00:30"]),  # the first of the two
        ("15,45 2 * * *", ["25 00:15", "25 00:45"]),
        ("0 3 * * *", ["25 02:00"]),
        ("*/20 2 * * *", [f"25 {h:02}:{m:02}" for h in (0, 1) for m in (0, 20, 40)]),  # but with a star as it is shown
        ("0 */2 * * *", ["24 22:00", "25 00:00", *(f"25 {h:02}:00" for h in range(1, 23, 2))]),
        ("*/30 2 * * *", ["25 00:00", "25 00:30", "25 01:00", "25 01:30"]),  # every so many minutes: throughout
    ],
)
def test_a_time_that_the_clock_shows_twice_is_due_once(expression: str, times: list[str]) -> None:
    assert due(expression, BACK) == times


def test_between_the_two_it_is_due_the_next_day() -> None:
    """Where the clock shows 2:10 for the second time, the 2:30 that is due was an hour before."""
    between = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)
    assert cron.next_after("30 2 * * *", BERLIN, between) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize("zone", [BERLIN, "UTC", "Asia/Kolkata"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/20 1-3 * * *", "0 9 * * MON-FRI", "0 0 1 * *"])
@pytest.mark.parametrize("day", [FORWARD, BACK])
def test_the_last_of_those_missed_is_the_last_of_all(zone: str, expression: str, day: datetime) -> None:
    first = cron.next_after(expression, zone, day - timedelta(days=40))
    assert first is not None
    until = day + timedelta(hours=7)
    every = [first, *takewhile(lambda at: at <= until, cron.due_after(expression, zone, first))]
    assert cron.last_due(expression, zone, first=first, until=until) == every[-1]
    assert cron.last_due(expression, zone, first=first, until=first) == first
    assert all(a < b for a, b in pairwise(every))


@pytest.mark.parametrize(
    ("expression", "zone", "words"),
    [
        ("", "UTC", "has not five fields: write minute, hour"),
        ("0 9 * *", "UTC", "has not five fields"),
        ("0 0 9 * * *", "UTC", "has not five fields"),
        ("@daily", "UTC", "has not five fields"),
        ("61 * * * *", "UTC", "is no cron expression: bad minute"),
        ("0 9 * * FUNDAY", "UTC", "is no cron expression: bad day-of-week"),
        ("0 0 30 2 *", "UTC", "is no cron expression: bad day-of-month"),
        ("* * */20 * 1L", "UTC", "is never due"),
        (
            f"{','.join(map(str, range(60)))} * * * {','.join(['1'] * 30)}",
            "UTC",
            "has 235 characters, and 200 may",
        ),
        ("0 9 * * *", "Europe/Nowhere", "is no time zone: write one of the IANA database"),
        ("0 9 * * *", "", "is no time zone"),
        ("0 9 * * *", "../../etc/passwd", "is no time zone"),
        ("0 9 * * *", "Europe", "is no time zone"),
        ("0 9 * * *", "a\0", "is no time zone"),
    ],
)
def test_what_is_never_due_is_refused(expression: str, zone: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        cron.check(expression, zone)
