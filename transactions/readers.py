"""Whether a version can carry a run on: what it serves, which states of a run it reads, and which it migrates first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions import messages, stopping
from transactions.canonical import canonical_json, storable_json, storable_reason
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import SurefootError
from transactions.events import Event, number
from transactions.ids import RunId
from transactions.statements import load

_RUNS = load("runs")
_READERS = load("readers")
_ALL = 2**31 - 1
INPUT_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Record:
    """What a migration changes of a run, as JSON: what it was started with, and the messages of its model in order."""

    input: JsonValue
    messages: Sequence[JsonValue]


class Migrate(Protocol):
    def __call__(self, state: int, record: Record, /) -> Record: ...


@dataclass(frozen=True, slots=True)
class Reader:
    """An agent as one application version has it.

    `as_is`: the state versions that it carries on as they are, its own `writes` among them; `migrated`: those that
    `migrate` makes readable first. `tools`: those that change something, each with its kind, as `tool kind`.
    """

    agent_version: str
    turns_max: int
    writes: int
    as_is: frozenset[int]
    migrated: frozenset[int]
    migrate: Migrate
    tools: frozenset[str]


@dataclass(frozen=True, slots=True)
class Serving:
    """What a process begins segments with: its application version, and its agents by name."""

    version: str
    agents: Mapping[str, Reader]


async def admit(
    session: AsyncSession, run: Mapping[str, Any], segment: Mapping[str, Any], serving: Serving
) -> Mapping[str, Any] | None:
    """The run, as this version may begin its segment. None: it has been passed on to one that can, or is held.

    The caller holds the run row's lock. A record that has to be migrated is, in this transaction, and with an event.
    """
    if run["pinned_version"] not in (None, serving.version):
        await _pass_on(session, run, version=serving.version, why=f"it was moved to {run['pinned_version']!r} alone")
        return None
    reader = serving.agents.get(run["agent"])
    why = await _why_not(session, run, serving.version, reader)
    if why is not None:
        await refuse(session, run, version=serving.version, why=why)
        return None
    assert reader is not None
    if run["agent_version"] is None or run["state_version"] in reader.as_is:
        return run
    if segment["frozen"] is not None:  # what is recorded of it belongs to the record as it is, and would not fit
        told = Event("segment.given_up", {"segment": segment["n"], "why": "its run's state has to be migrated first"})
        await stopping.go_on_without(session, run, outcome="migrated", stalls=run["stalls"], told=told)
        return None
    if not await _migrate(session, run, serving.version, reader):
        return None
    return await fetch_one(session, _RUNS["lock"], run_id=run["run_id"])


async def _why_not(session: AsyncSession, run: Mapping[str, Any], version: str, reader: Reader | None) -> str | None:
    if reader is None:
        return f"version {version!r} does not serve agent {run['agent']}"
    if run["agent_version"] is None:
        return None
    if run["state_version"] not in reader.as_is | reader.migrated:
        return f"its state is of version {run['state_version']}, which version {version!r} cannot read"
    if run["app_version"] == version:
        return None
    return await unknown_tools(session, run, version, reader)


async def unknown_tools(session: AsyncSession, run: Mapping[str, Any], version: str, reader: Reader) -> str | None:
    """Why this version cannot take up the run's calls that its model has not seen the answers of; None: it can."""
    rows = await fetch_all(session, _READERS["open_calls_of_other_tools"], run_id=run["run_id"], tools=[*reader.tools])
    if not rows:
        return None
    names = ", ".join(f"{row['tool']} ({row['kind']})" for row in rows)
    return f"it has called {names}, and version {version!r} has no such tool to take that up"


async def refuse(session: AsyncSession, run: Mapping[str, Any], *, version: str, why: str) -> None:
    """This version cannot carry the run on: another one does, or it is held. The caller holds the run row's lock."""
    await execute(session, _RUNS["refuse"], run_id=run["run_id"], version=version)
    await _pass_on(session, run, version=version, why=why)


async def _pass_on(session: AsyncSession, run: Mapping[str, Any], *, version: str, why: str) -> None:
    run_id = RunId(run["run_id"])
    other = await fetch_one(session, _READERS["who_else"], run_id=run_id)
    assert other is not None
    if other["version"] is None:
        await stopping.hold(session, run_id, run["segment"], reason=held_words(why, None), for_version=True)
        return
    told = Event("segment.refused", {"segment": run["segment"], "by": version, "to": other["version"], "why": why})
    await stopping.go_on_without(session, run, outcome="refused", stalls=run["stalls"], told=told)


def held_words(why: str, readers: str | None) -> str:
    """The reason of a run that is held until a version can carry it on. readers: versions that could, if they lived."""
    if readers is None:
        who = "and no version that was ever started here can: start one that can"
    else:
        who = f"and no worker of one that can lives ({readers}): start one, or a new version that can"
    return (
        f"{why}, {who} (`durable(..., reads=..., migrate=...)`), and it goes on by itself; or choose one with "
        "`surefoot runs migrate --to`."
    )


# Migrating.


async def _migrate(session: AsyncSession, run: Mapping[str, Any], version: str, reader: Reader) -> bool:
    """Migrate the run's record. False: it could not be, and the run has been passed on, or is held."""
    run_id, state = RunId(run["run_id"]), run["state_version"]
    before = Record(run["input"], await messages.before(session, run_id, cut=_ALL))
    acted = {row["call_id"] for row in await fetch_all(session, _READERS["calls_of_last_turn"], run_id=run_id)}
    try:
        after = reader.migrate(state, before)
        changed = _changed(before.messages, after.messages, acted)
        text = storable_json([{"seq": seq, "message": after.messages[seq]} for seq in changed])
        given = storable_json(after.input)
        if len(given.encode()) > INPUT_BYTES_MAX:
            raise _NotInPlace(f"it made an input of over {INPUT_BYTES_MAX} bytes: keep it smaller")
    except Exception as error:  # the agent's own function
        words = str(error) if isinstance(error, _NotInPlace) else f"{type(error).__name__}: {error}"
        why = f"its state could not be migrated from version {state} to {reader.writes}: {storable_reason(words)}"
        await refuse(session, run, version=version, why=why)
        return False
    new_input = canonical_json(before.input) != given
    await execute(
        session,
        _READERS["keep_as_it_was"],
        run_id=run_id,
        segment=run["segment"],
        tenant=run["tenant"],
        from_state=state,
        to_state=reader.writes,
        version=version,
        seqs=changed,
        input_changed=new_input,
    )
    await execute(session, _READERS["rewrite_messages"], run_id=run_id, messages=text)
    if new_input:
        await execute(session, _READERS["rewrite_input"], run_id=run_id, input=given)
    told: dict[str, JsonValue] = {"from": state, "to": reader.writes, "version": version, "messages": len(changed)}
    await number(session, run_id, Event("run.migrated", told))
    return True


class _NotInPlace(SurefootError):
    """A migration did more than rewrite what is there."""


def _changed(before: Sequence[JsonValue], after: Sequence[JsonValue], acted: set[str]) -> list[int]:
    """The numbers of the messages that are others now. Raises _NotInPlace.

    Turns are counted, and actions known, by what the messages are: so each stays what it is, with the same calls, and
    a call that is not answered and has an action stays as the model made it. acted: those of the last response with
    one; what follows it may answer some of them.
    """
    last = max((seq for seq, message in enumerate(before) if _shape(message)[0] == "response"), default=-1)
    begun = acted - {part.get("tool_call_id") for message in before[last + 1 :] for part in _parts(message)}
    if len(before) != len(after):
        raise _NotInPlace(f"it made {len(after)} messages of {len(before)}: keep each, and rewrite it in place")
    changed: list[int] = []
    for seq, (old, new) in enumerate(zip(before, after, strict=True)):
        if old == new:
            continue
        if _shape(old) != _shape(new):
            raise _NotInPlace(f"message {seq} is of another kind, or has other calls: keep both, with their ids")
        if seq == last and any(_calls(old)[id] != _calls(new)[id] for id in begun & _calls(old).keys()):
            raise _NotInPlace(f"message {seq} has another name or other arguments for a call that was begun: keep them")
        changed.append(seq)
    return changed


def _shape(message: Any) -> tuple[str, list[str]]:
    return message["kind"], list(_calls(message))


def _calls(message: Any) -> dict[str, Any]:
    """Name and arguments of each call of a response, by its id, in order."""
    parts = _parts(message) if message["kind"] == "response" else ()
    return {p["tool_call_id"]: (p["tool_name"], p["args"]) for p in parts if p["part_kind"] == "tool-call"}


def _parts(message: Any) -> Sequence[Any]:
    return message["parts"]
