"""Application versions: which ones there are, which one is current, and what each can read.

An application version is every agent with its version, and the build that the deployment names. It is current from the
moment a first worker of it is ready, until a newer one is, or until another one is made current again. Of the versions
that can carry a run on, the one that became current last does (`surefoot.version_for`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import InvalidInput, NotFound
from transactions.ids import Tenant
from transactions.statements import load
from transactions.words import check_words

_VERSIONS = load("versions")
_VERSION_CHARACTERS_MAX = 4000


@dataclass(frozen=True, slots=True)
class Serves:
    """An agent as one application version has it. `reads`: the state versions of a run that it can carry on, its own
    `state_version` among them; `tools`: the names of those that it has; `limits`: seconds in a state, after which a
    run of it is stuck."""

    agent: str
    agent_version: str
    state_version: int
    reads: frozenset[int]
    tools: frozenset[str]
    input_schema: JsonValue
    limits: Mapping[str, float]


async def announce(session: AsyncSession, version: str, serves: Iterable[Serves]) -> None:
    """What a worker's start says. It changes neither what is current (`begin` does) nor what can be read.

    Raises InvalidInput when this build reads other states of runs than the one that was started under the same version.
    """
    if len(version) > _VERSION_CHARACTERS_MAX:
        raise InvalidInput(f"The application version is over {_VERSION_CHARACTERS_MAX} characters: serve fewer agents.")
    await execute(session, _VERSIONS["add_if_new"], version=version)
    known = {row["agent"]: row for row in await fetch_all(session, _VERSIONS["agents_of"], version=version)}
    for one in sorted(serves, key=lambda one: one.agent):  # in one order everywhere: each locks its row
        if (before := known.get(one.agent)) is not None:
            _refuse_other_states(version, one, before)
        await execute(
            session,
            _VERSIONS["put_agent"],
            version=version,
            agent=one.agent,
            agent_version=one.agent_version,
            state_version=one.state_version,
            reads=sorted(one.reads),
            tools=sorted(one.tools),
            input_schema=json.dumps(one.input_schema),
            limits=json.dumps(dict(one.limits)),
        )
    await execute(session, _VERSIONS["announce_where_current"], version=version)


async def begin(session: AsyncSession, version: str) -> bool:
    """What a worker says that is ready. True when it is the first of its version, which is current from then on."""
    if await fetch_one(session, _VERSIONS["make_current_if_never"], version=version) is None:
        return False
    await execute(session, _VERSIONS["announce_where_current"], version=version)
    return True


def _refuse_other_states(version: str, one: Serves, before: Mapping[str, Any]) -> None:
    if (before["state_version"], frozenset(before["reads"])) == (one.state_version, one.reads):
        return
    raise InvalidInput(
        f"As version {version!r}, agent {one.agent} was started before; then it wrote state {before['state_version']} "
        f"and read {_numbers(before['reads'])}; this build writes {one.state_version} and reads {_numbers(one.reads)}. "
        "Raise the agent's version, or name the build with SUREFOOT_VERSION."
    )


def _numbers(states: Iterable[int]) -> str:
    return ", ".join(str(state) for state in sorted(states))


async def use(session: AsyncSession, version: str, *, by: str) -> str:
    """Make a version current again, by its name or its number. Its name. What it serves goes by it from this commit on.

    A run continues there where it can read the run's state. Raises NotFound.
    """
    check_words(by, None)
    name = await find(session, version)
    await execute(session, _VERSIONS["make_current"], version=name, by=by)
    await execute(session, _VERSIONS["announce_where_current"], version=name)
    return name


async def find(session: AsyncSession, version: str) -> str:
    """The name of a version, given its name or its number. Raises NotFound."""
    row = await fetch_one(session, _VERSIONS["find"], version=version)
    if row is None:
        raise NotFound(f"No application version {version!r} was ever started here: see `surefoot versions list`.")
    return row["version"]


async def replace_what_is_gone(session: AsyncSession, *, gone_s: float) -> Sequence[str]:
    """Make the newest live version of an agent current whose current one has had no worker for `gone_s` seconds.

    So that rolling out an older image is a rollback by itself. Not while the fleet itself has not been up for as long,
    nor where that one would take another agent from a current version that lives: what is executed goes by the newest
    live version anyway. Which became current.
    """
    rows = await fetch_all(session, _VERSIONS["newest_where_current_is_gone"], gone_s=gone_s)
    return [await use(session, row["version"], by="watchdog") for row in rows]


async def page(session: AsyncSession, tenant: Tenant, *, limit: int) -> Sequence[Mapping[str, Any]]:
    """The rows of `surefoot.version_status`, the newest version first, with `runs` of the tenant, which are not over
    and were begun by it last, and `bound_runs`, those of them that the current version cannot carry on."""
    return await fetch_all(session, _VERSIONS["page"], tenant=tenant, limit=limit)
