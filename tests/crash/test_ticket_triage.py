"""The triage as a subject of the kit: what it leaves in every world when nobody strikes."""

from app.agents.ticket_triage import ticket_triage
from app.agents.ticket_triage.request import EXAMPLE
from app.crashtest.outcome import Outcome
from app.demo.worlds.tickets import SUBJECT_CHARACTERS_MAX


def test_the_triage_undisturbed_leaves_each_effect_once_in_every_world(triage_run: Outcome) -> None:
    picture = triage_run.picture
    subjects = [
        "[high] The export ends early",
        f"[low] {EXAMPLE.reports[1].subject}"[:SUBJECT_CHARACTERS_MAX],
        "[critical] The shop is down",
    ]
    effects = [f"ticket {subject}" for subject in subjects] + [f"mail to {one.customer}" for one in EXAMPLE.reports]
    effects += ["issue 7/0:escalate", "issue 8/0:escalate", "page"]
    assert (triage_run.end, picture.state) == ("ended", "completed")
    assert picture.world == {f'"{effect}"': 1 for effect in effects}
    assert [*picture.rows.values()] == [1, 1, 1]
    assert [action for action in picture.actions if not action.endswith("SUCCEEDED")] == ["4/0:open_ticket FAILED"]


def test_its_effects_are_safe_in_every_way_there_is() -> None:
    safe = {name: spec.safety for name, spec in ticket_triage.specs.items() if spec.kind == "effect"}
    assert safe == {"open_ticket": "idempotent", "escalate": "verify", "page": "at_most_once"}
