"""The second bundled subject uses every kind of tool and every way to be safe: what it leaves when nobody strikes."""

from pathlib import Path
from typing import Any, cast

import pytest

from app.crashtest.errands import errands
from app.crashtest.outcome import Outcome
from app.crashtest.subjects import agents_with, bundled
from app.demo.worlds.web import requests
from transactions import InvalidInput

# Commits that a run makes only when something is refused, unanswered, out of date or cannot be told.
RARE = (
    "query",
    "tool.load",
    "tool.refuse",
    "tool.objected",
    "watchdog.expire",
    "effect.not_sent",
    "effect.unknown",
    "effect.unsure",
    "effect.found",
    "effect.refused",
    "effect.refuse",
)


def test_errands_has_every_kind_of_tool_and_every_way_to_be_safe() -> None:
    declared = {(spec.kind, spec.safety, spec.approval is not None) for spec in errands.specs.values()}
    assert declared == {
        ("read", "transaction", False),
        ("transaction", "transaction", False),
        ("transaction", "transaction", True),
        ("effect", "idempotent", False),
        ("effect", "verify", False),
        ("effect", "verify", True),
        ("effect", "at_most_once", True),
    }


def test_errands_undisturbed_leaves_each_effect_once_in_every_world(errands_run: Outcome, errands_world: Path) -> None:
    picture = errands_run.picture
    assert (errands_run.end, picture.state) == ("ended", "completed")
    assert picture.world == {
        '"ticket the lamp is broken"': 1,
        '"publication 5/0:publish"': 1,
        '"publication 10/0:announce~2"': 1,
        '"publication 11/1:engrave"': 1,
        '"job 6/0:submit_job"': 1,
        '"job 8/0:phone"': 1,
        '"pay"': 1,
        '"mail hello"': 1,
        '"mail published"': 1,
        '"mail announced"': 1,
    }
    notes = ("hello", "published", "announced", "signed: party", "signed: contract")
    assert picture.rows == {f'["{text}", 1]': 1 for text in notes}
    assert [action for action in picture.actions if not action.endswith("SUCCEEDED")] == [
        "9/0:fax FAILED",
        "10/0:announce CANCELLED",
        "12/0:open_ticket FAILED",
        "12/1:write_note CANCELLED",
        "13/0:whisper CANCELLED",
        "13/1:write_note CANCELLED",
    ]
    passed = set(errands_run.trace)
    assert [name for name in RARE if not {f"{name}.before_commit", f"{name}.after_commit"} <= passed] == []
    assert errands_run.trace.count("segment.end.after_commit") > 1
    posted = {name: [r.method for r in requests(errands_world / f"{name}.sqlite")] for name in ("tickets", "payments")}
    assert posted == {"tickets": ["POST"] * 2, "payments": ["POST"]}


async def test_the_world_of_an_agent_that_is_not_delivered_is_its_owners(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"'shop' is not known here: .+ From the command line: monthly_report, errands, ticket_triage",
    ):
        async with bundled("shop", cast(Any, None), tmp_path):
            pass
    assert agents_with("shop", "my:shop") == "my:shop"
    assert agents_with("errands", "my:shop") == "my:shop,app.crashtest.errands:errands"
