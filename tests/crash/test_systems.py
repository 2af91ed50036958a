"""The table of outbox/README.md is the one that `surefoot crashtest --systems` makes, and what it would call wrong."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from app.crashtest import systems
from app.crashtest.faults import parse
from app.crashtest.judge import Finding, Picture, Verdict
from app.crashtest.outcome import Case, Outcome, Strike
from app.crashtest.systems import DESK, FAULTS, NEVER_ASKED, ONE, SHOWN, SYSTEMS, Systems

README = Path(str(files("outbox").joinpath("README.md")))
LOST = parse("lost-response:connection:1")


def played(verdict: Verdict) -> Outcome:
    return Outcome(
        case=Case("case_1", LOST),
        run_id="run",
        strikes=[Strike(LOST[0], 1, "connection", True, 0.0, 1)],
        verdict=verdict,
        end="ended",
        seconds=1.0,
        deaths=0,
        exits=[],
        repeated=0,
        picture=Picture("completed", "", (), (), {}, {}),
        trace=[],
        connections=1,
    )


def test_the_readme_has_every_fault_on_every_system_and_none_that_is_wrong() -> None:
    table = systems.written(README.read_text())
    assert table is not None
    head, _, *lines = table.splitlines()
    assert head == f"| fault | {' | '.join(SYSTEMS)} |"
    rows = {fault: cells for fault, *cells in (line.strip("| ").split(" | ") for line in lines)}
    assert [*rows] == [*FAULTS]
    for fault, cells in rows.items():
        by_system = dict(zip(SYSTEMS, cells, strict=True))
        assert {by_system.pop("honours keys"), by_system.pop("can be searched")} == {ONE}
        assert by_system["neither"] in ({ONE} if fault in NEVER_ASKED else {ONE, DESK, SHOWN})


@pytest.mark.parametrize(
    ("system", "fault", "verdict", "wrong"),
    [
        ("honours keys", "the response is lost", Verdict("recovered"), []),
        ("honours keys", "the response is lost", Verdict("on the desk"), ["nobody has to be asked"]),
        ("can be searched", "the response is lost", Verdict("on the desk"), ["nobody has to be asked"]),
        ("neither", "the response is lost", Verdict("on the desk"), []),
        ("neither", "the connection is refused", Verdict("on the desk"), ["nobody has to be asked"]),
        ("neither", "429 with Retry-After", Verdict("on the desk"), ["nobody has to be asked"]),
        ("neither", "the response is lost", Verdict("failed", [Finding("double", "twice")]), ["twice"]),
    ],
)
def test_what_is_wrong_is_called_so(system: str, fault: str, verdict: Verdict, wrong: list[str]) -> None:
    found = systems._wrong(system, fault, played(verdict))
    assert len(found) == len(wrong)
    assert all(words in line for words, line in zip(wrong, found, strict=True))


def test_a_fault_that_struck_nothing_proves_nothing() -> None:
    outcome = replace(played(Verdict("recovered")), strikes=[])
    assert systems._wrong("neither", "the response is lost", outcome) == ["lost-response:connection:1 struck nothing"]


def test_a_table_is_written_between_its_marks_and_read_from_there() -> None:
    table = Systems({(fault, system): ONE for fault in FAULTS for system in SYSTEMS}, ())
    readme = f"before\n{systems.BEGIN}\nold\n{systems.END}\nafter\n"
    again = systems.write(readme, table)
    assert again.startswith("before\n")
    assert again.endswith("\nafter\n")
    assert systems.written(again) == str(table)
    assert systems.written("no table") is None
