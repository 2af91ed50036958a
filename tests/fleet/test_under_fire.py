"""Three workers on hosts of their own, one of which is killed, frozen or cut off every second. As root, on Linux."""

import pytest

from app.crashtest import hosts
from app.crashtest.fleet import Options, play, text

SMALL = Options(seconds=10, runs=24, seed=1, hits_min=4)


async def test_a_small_fleet_under_fire_ends_every_run_right() -> None:
    if (why := hosts.why_not()) is not None:
        pytest.skip(f"a fleet needs network namespaces, and {why}")
    report = await play(SMALL)
    print(text(report))
    assert report.findings == []
    assert report.verdicts.get("recovered", 0) + report.verdicts.get("residual", 0) == SMALL.runs
    assert report.runs_struck > 0
