"""What a person makes of a run's way: hold it, let it go on, move it to another version."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import stopping, versions, waits
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, InvalidInput, NotFound
from transactions.events import Event, number
from transactions.ids import RunId, Tenant
from transactions.statements import load
from transactions.states import RunState
from transactions.words import check_words

_RUNS = load("runs")
_READERS = load("readers")


async def hold(session: AsyncSession, run_id: RunId, *, by: str, reason: str) -> RunState:
    """Put a run aside until it is released. HELD, or RUNNING: then it is held at its next boundary.

    A boundary is where nothing of the model's last response is left to do, or where the run begins to wait. What was
    sent is settled meanwhile, and approvals may be decided. Raises NotFound, Conflict (it is held, or over),
    InvalidInput.
    """
    check_words(by, reason)
    if not reason.strip():
        raise InvalidInput("Say why the run is held: whoever finds it has only that to go by.")
    run = await _open_run(session, run_id)
    if run["state"] == RunState.HELD:
        raise Conflict(f"Run {run_id} is held already ({run['reason']}): `surefoot runs release` lets it go on.")
    words = f"{by}: {reason}"
    if run["state"] == RunState.RUNNING:
        await execute(session, _RUNS["ask_if_running"], run_id=run_id, asked="hold", reason=words)
        await number(session, run_id, Event("run.hold_asked", {"by": by, "reason": reason}))
        return RunState.RUNNING
    await stopping.hold(session, run_id, run["segment"], reason=words, by=by)
    return RunState.HELD


async def go_on(session: AsyncSession, run: Mapping[str, Any], *, by: str, anywhere: bool) -> None:
    """A held run waits again where something it waited for is open, else it goes on. The caller holds its row's lock.

    anywhere: versions that refused it may try again.
    """
    run_id = RunId(run["run_id"])
    told = Event("run.released", {"by": by})
    if await waits.count_open(session, run_id, run["segment"]):
        await execute(session, _RUNS["wait_if_held"], run_id=run_id)
        await number(session, run_id, told)
        return
    raised = await fetch_one(session, _RUNS["raise_segment_if_held"], run_id=run_id, anywhere=anywhere)
    assert raised is not None, "the lock is held and the state was read under it"
    await number(session, run_id, told)
    await waits.enqueue_next(session, run_id, n=raised["segment"], tenant=raised["tenant"])


async def move(session: AsyncSession, run_id: RunId, *, to: str | None, by: str) -> str | None:
    """Have a run carried on by one version alone from its next boundary on; None: by the newest that can, as any other.

    Which version has it then; None: none that lives can. One that is held for want of a version goes on.
    Raises NotFound (the run, the version), Conflict (it is over, or that version cannot carry it on), InvalidInput.
    """
    check_words(by, None)
    run = await _open_run(session, run_id)
    version = None if to is None else await versions.find(session, to)
    if version is not None:
        await _check_reads(session, run, version)
    await execute(session, _RUNS["pin"], run_id=run_id, version=version)
    told: dict[str, JsonValue] = {"to": version, "by": by}
    await number(session, run_id, Event("run.moved", told))
    found = await fetch_one(session, _READERS["version_for"], run_id=run_id)
    assert found is not None
    following: str | None = found["version"]
    if run["state"] == RunState.RUNNING and following not in (None, run["app_version"]) and run["asked"] is None:
        await execute(session, _RUNS["ask_if_running"], run_id=run_id, asked="hand on", reason=None)
    if run["state"] == RunState.HELD and run["held_for"] == "version" and following is not None:
        await go_on(session, run, by=by, anywhere=False)
    return following


async def _check_reads(session: AsyncSession, run: Mapping[str, Any], version: str) -> None:
    served = await fetch_one(session, _READERS["served"], version=version, agent=run["agent"])
    if served is None:
        raise Conflict(f"Version {version!r} does not serve agent {run['agent']}: see `surefoot versions list`.")
    if run["agent_version"] is not None and run["state_version"] not in served["reads"]:
        raise Conflict(
            f"Run {run['run_id']} has a state of version {run['state_version']}, and version {version!r} reads "
            f"{', '.join(str(state) for state in served['reads'])}: choose another one (`surefoot versions list`)."
        )


async def begun_by(
    session: AsyncSession, tenant: Tenant, version: str, *, after: RunId | None, limit: int
) -> Sequence[RunId]:
    """Runs of the tenant that are not over and that this version began last, by id. Raises NotFound."""
    name = await versions.find(session, version)
    rows = await fetch_all(session, _RUNS["begun_by"], tenant=tenant, version=name, after=after or "", limit=limit)
    return [RunId(row["run_id"]) for row in rows]


async def asked_among(session: AsyncSession, run_ids: Sequence[RunId]) -> frozenset[RunId]:
    """Those of the runs that a person wants held, or handed on, at their next boundary."""
    rows = await fetch_all(session, _RUNS["asked_of"], run_ids=list(run_ids))
    return frozenset(RunId(row["run_id"]) for row in rows)


async def _open_run(session: AsyncSession, run_id: RunId) -> Mapping[str, Any]:
    run = await fetch_one(session, _RUNS["lock"], run_id=run_id)
    if run is None:
        raise NotFound(f"No run {run_id}: see `surefoot runs list`.")
    state = RunState(run["state"])
    if state.ended or state is RunState.CANCELLING:
        raise Conflict(f"Run {run_id} is {state}: there is nothing left to hold or to move.")
    return run
