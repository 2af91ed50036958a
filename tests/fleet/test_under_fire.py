"""Three workers on hosts of their own, one of which is killed, frozen or cut off every second. As root, on Linux."""

import pytest

from app.crashtest import hosts
from app.crashtest.fleet import Options, play, text

# How long it takes is measured where nothing else runs: here other tests do.
SMALL = Options(seconds=8, runs=16, seed=1, hits_min=3, over_s=60.0)


async def test_a_small_fleet_under_fire_ends_every_run_right() -> None:
    if (why := hosts.why_not()) is not None:
        pytest.skip(f"a fleet needs network namespaces, and {why}")
    report = await play(SMALL)
    print(text(report))
    assert report.findings == []
    assert report.verdicts.get("recovered", 0) + report.verdicts.get("residual", 0) == SMALL.runs
    assert report.runs_struck > 0
