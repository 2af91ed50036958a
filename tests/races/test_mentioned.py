"""What still names an artifact keeps the version, and the run that saved it: each way to name one, with the look for it
taken away.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from sqlalchemy import text

from tests import retained
from tests.races.scenes import Scene
from tests.retained import GROUP, Made
from transactions import DEFAULT_TENANT, ArtifactRef, RunId, artifacts, removal
from transactions.removal import START
from transactions.retention import FOREVER


@dataclass(frozen=True, slots=True)
class Mention:
    """How something that is not over, or stays itself, names the hash of a version; what ends that; what sees it."""

    says: str
    ends: str
    guard: str
    why: str = "another run refers to an artifact of it"


# Parameters are the run that mentions it, and the reference.
MENTIONS: dict[str, Mention] = {
    "a delivery that is open": Mention(
        "with e as (insert into surefoot.outbox_entries (entry_id, tenant, run_id, topic, payload)"
        " values (%(run)s || '#late', 'default', %(run)s, 'news', %(ref)s) returning entry_id)"
        " insert into surefoot.outbox_deliveries (entry_id, consumer, tenant, state, attempts_max)"
        " select entry_id, 'late', 'default', 'pending', 3 from e",
        "update surefoot.outbox_deliveries set state = 'discarded', settled_at = now() where consumer = 'late'",
        "m.payload @? '$.**.sha256'",
        "a delivery that is open or dead, or a schedule, refers to an artifact of it",
    ),
    "an output": Mention(
        "update surefoot.runs set output = %(ref)s where run_id = %(run)s",
        "update surefoot.runs set output = null where run_id = %(run)s",
        "m.output @? '$.**.sha256'",
    ),
    "an answer": Mention(
        "update surefoot.actions set result = %(ref)s where run_id = %(run)s",
        "update surefoot.actions set result = '1' where run_id = %(run)s",
        "m.result @? '$.**.sha256'",
    ),
    "what a model said": Mention(
        "insert into surefoot.model_messages (run_id, seq, tenant, segment, message)"
        " values (%(run)s, 0, 'default', 0, jsonb_build_object('args', %(ref)s::text))",
        "delete from surefoot.model_messages where run_id = %(run)s",
        "m.message::text ~ '[0-9a-f]{64}'",
    ),
    "a schedule": Mention(
        "insert into surefoot.schedules (tenant, name, agent, input, cron, time_zone, principal, priority, missed,"
        " overlap, enabled, changed_by) select 'default', 'monthly', agent, %(ref)s, '0 0 1 * *', 'UTC', 'ada', 0,"
        " 'last', 'skip', false, 'ada' from surefoot.runs where run_id = %(run)s",
        "update surefoot.schedules set removed_at = now()",
        "m.input @? '$.**.sha256'",
        "a delivery that is open or dead, or a schedule, refers to an artifact of it",
    ),
}


@pytest.mark.parametrize("how", MENTIONS)
async def test_what_is_named_by_something_that_still_needs_it_stays_a_version_of_it_and_its_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    made, other = await retained.begun(scene), await retained.begun(scene)
    assert made.artifact is not None
    await _replaced(scene, made, made.artifact.name)
    await retained.over(scene, made)
    await retained.aged(scene, made)
    await scene.rows("update surefoot.artifacts set created_at = created_at - interval '2 hours'")
    mention = MENTIONS[how]
    of = {"run": other.run_id, "ref": json.dumps(made.artifact.model_dump())}
    await _changed(scene, mention.says, of)
    assert await _going(scene) == ((0, {"something refers to it": 1}), (0, {mention.why}))
    for name in ("referred_to", "remove_versions_if_nothing_refers_to_them"):
        spoilt = removal._REMOVAL[name].text.replace(mention.guard, f"false and {mention.guard}")
        assert spoilt != removal._REMOVAL[name].text
        with monkeypatch.context() as without:
            without.setattr(removal, "_REMOVAL", {**removal._REMOVAL, name: text(spoilt)})
            versions, whole = await _going(scene)
            assert (versions[0], whole[0]) == ((0, 1) if name == "referred_to" else (1, 0)), "a control"
    await _changed(scene, mention.ends, of)
    assert await _going(scene) == ((1, {}), (1, set()))


async def _replaced(scene: Scene, made: Made, name: str) -> ArtifactRef:
    async with scene.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
        return await artifacts.save(
            session,
            tenant=DEFAULT_TENANT,
            run_id=RunId(made.run_id),
            action_id=made.first,
            name=name,
            content=b"the next version",
            media_type="text/plain",
        )


async def _changed(scene: Scene, change: str, of: Mapping[str, str]) -> None:
    await scene.admin.execute(change.encode(), of)


async def _going(scene: Scene) -> tuple[tuple[int, dict[str, int]], tuple[int, set[str]]]:
    """How many old versions and runs would go, and why others stay."""
    async with scene.database.removing("retention.batch") as session:
        versions = await removal.old_versions(session, GROUP, START, limit=10)
        await session.rollback()
    async with scene.database.removing("retention.batch") as session:
        whole = await removal.whole_runs(session, GROUP, START, limit=10, keys_s=FOREVER)
        await session.rollback()
    return (versions.items, dict(versions.kept)), (whole.items, set(whole.kept))


async def test_a_version_stays_until_its_run_is_done_and_the_call_that_saved_it_does_not_keep_it(scene: Scene) -> None:
    made = await retained.begun(scene)
    assert made.artifact is not None
    await _replaced(scene, made, made.artifact.name)
    said = json.dumps(made.artifact.model_dump())
    await scene.rows("update surefoot.actions set result = %s where action_id = %s", said, made.first)
    await retained.over(scene, made)
    await scene.rows("update surefoot.artifacts set created_at = created_at - interval '2 hours'")
    await retained.spoil(scene, made, "undelivered")
    assert (await _going(scene))[0] == (0, {"its run is not done": 1})
    await retained.spoil(scene, made, "undelivered", there=False)
    assert (await _going(scene))[0] == (1, {})


async def test_the_same_bytes_of_another_version_are_no_reference(scene: Scene) -> None:
    """Or two runs that came to the same would keep each other for ever."""
    runs = [await retained.begun(scene) for _ in range(2)]
    for made in runs:
        reference = await _replaced(scene, made, "the report")
        said = json.dumps({"of": [reference.model_dump()]})
        await scene.rows("update surefoot.actions set result = %s where run_id = %s", said, made.run_id)
        await retained.over(scene, made)
        await scene.rows("update surefoot.runs set output = %s where run_id = %s", said, made.run_id)
        await retained.aged(scene, made)
    for _ in runs:
        async with scene.database.removing("retention.batch") as session:
            batch = await removal.whole_runs(session, GROUP, START, limit=1, keys_s=FOREVER)
        assert (batch.items, batch.kept) == (1, {})
