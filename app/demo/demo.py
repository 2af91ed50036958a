"""One performance of the demo: check, build the stage, play, judge, tell."""

import json
import time

from app.demo import acts, barrage, story
from app.demo.facts import collect
from app.demo.house import clear, open_house
from app.demo.judge import judge
from app.demo.options import Options, checked
from app.demo.scene import Scene
from app.demo.stage import Stage
from app.demo.summary import summarize

KILLS_IN_STORY = 3


def play(options: Options) -> bool:
    """Perform, print, write what was found. True when every claim holds. Raises SurefootError, LocalPostgresError."""
    say = story.Teller(began := time.monotonic())
    given = checked(options)
    with open_house() as house:
        say.opening(given, house.embedded, house.folder)
        with Stage(house.folder, house.url) as stage:
            scene = Scene(stage, house.records, given, say)
            stage.open_world()
            clear(stage, house.records, say)
            kills = _perform(scene, options, say)
            facts = collect(scene, kills_planned=kills)
        claims = judge(facts)
        summary = summarize(house.records, house.folder, facts, claims, seconds=time.monotonic() - began)
        if options.kills is None:
            say.timelines(house.records, facts)
        else:
            say.kills(facts)
        say.ending(facts, claims, summary)
    if options.json is not None:
        options.json.write_text(json.dumps(summary.as_json(options), indent=2) + "\n")
    return all(claim.holds for claim in claims)


def _perform(scene: Scene, options: Options, say: story.Teller) -> int:
    """Both acts; how many kills were planned."""
    say.heading("A plain pydantic-ai loop, killed right after the publishing service has committed")
    acts.plain_loop(scene)
    say.heading("The same agent on Surefoot")
    if options.kills is None:
        acts.three_kills(scene, hold=options.hold, edit=options.edit)
        return KILLS_IN_STORY
    barrage.random_kills(scene, kills=options.kills, seed=options.seed or 0)
    acts.finish(scene, SUREFOOT_STALLS_MAX=barrage.STALLS_MAX)
    return options.kills
