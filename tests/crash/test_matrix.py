"""A fixed sample of the crash matrix: every run comes out as if nobody had struck, and every control is noticed."""

from app.crashtest.controls import CONTROLS
from app.crashtest.report import Report
from tests.crash.conftest import SAMPLE


def test_every_run_that_was_struck_comes_out_as_if_it_had_not_been(report: Report) -> None:
    print(report)
    assert report.failed == []
    assert len(report.counted) >= SAMPLE
    assert len({strike.fault.kind for strike in report.strikes}) > 1


def test_every_control_fails_for_its_named_reason_and_passes_when_restored(report: Report) -> None:
    assert [str(control) for control in report.controls if not control.ok] == []
    assert len(report.controls) == len(CONTROLS) >= 7
