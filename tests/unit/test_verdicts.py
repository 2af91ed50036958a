"""The verdict of a search: what matches twice is never taken for one of the two."""

from dataclasses import dataclass

from steps import Absent, Found, Unsure, from_matches


@dataclass(frozen=True)
class Ticket:
    number: int


def test_none_is_absent_one_is_found_and_two_are_listed() -> None:
    assert from_matches([], "asked for r1") == Absent("asked for r1")
    assert from_matches([Ticket(7)], "r1") == Found(Ticket(7), "r1")
    assert from_matches([Ticket(7), Ticket(9)], "r1") == Unsure(
        {"matches": [{"number": 7}, {"number": 9}], "evidence": "r1"}
    )
