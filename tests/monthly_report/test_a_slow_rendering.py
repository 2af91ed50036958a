"""A worker that did not render the report itself may take its time to save it: that is no part of the transaction."""

import time
from dataclasses import replace
from typing import Any

import pytest

from app.agents.monthly_report import tools
from app.agents.monthly_report.agent import monthly_report
from app.crashtest.plugin import Rehearsal
from transactions import Limits

LIMIT_S = 1.5


def test_it_is_saved_by_a_worker_that_is_slower_than_a_transaction_may_be(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []
    really = tools.render

    def slowly(*figures: Any, commentary: str) -> str:
        if rendered:
            time.sleep(2 * LIMIT_S)
        rendered.append(commentary)
        return really(*figures, commentary=commentary)

    monkeypatch.setattr(tools, "render", slowly)
    monkeypatch.setattr(Limits, "within", lambda self, lease_s: replace(self, transaction_s=LIMIT_S))
    stage = rehearsal(monthly_report)
    stage.start({"month": "2013-08"})
    stage.crash_at("tool.transaction.before_commit", passage=2)
    assert stage.rows("select name from surefoot.artifacts") == []
    stage.until("waiting")
    assert stage.rows("select version from surefoot.artifacts") == [{"version": 1}]
    assert len(rendered) == 2, "it was rendered again where the worker was new"
