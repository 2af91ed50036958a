"""Artifacts saved as a tool saves them, for tests that look at where they are."""

from typing import Any
from uuid import uuid4

import psycopg

from app import Surefoot
from app.settings import Settings
from transactions import DEFAULT_TENANT, ActionId, ArtifactRef, Run, RunId, Tx

_RUN = (
    "insert into surefoot.runs (run_id, tenant, agent, principal, input, request_hash, state, event_seq)"
    " values (%s, 'default', 'a', 'nobody', '{}', 'h', 'queued', 0)"
)
_ACTION = (
    "insert into surefoot.actions (action_id, tenant, run_id, segment, turn, position, call_id, agent, tool, kind,"
    " safety, request, request_hash, gated, attempts_max, attempt_s)"
    " values (%s, 'default', %s, 0, 1, 0, 'c', 'a', 'write', 'transaction', 'transaction', '{}', 'h', false, 1, 1)"
)


def opened(url: str, setting: str | None) -> Surefoot:
    return Surefoot(url, [], settings=Settings(artifacts=setting))


def owner(url: str, sql: str, *parameters: object) -> list[Any]:
    """As the database's owner."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []


async def save(surefoot: Surefoot, name: str, *contents: bytes, media_type: str = "text/plain") -> list[ArtifactRef]:
    """Versions of one artifact, by one action of a run of its own."""
    run_id = str(uuid4())
    action_id = ActionId(f"{run_id}/1/0:write")
    owner(surefoot.database_url, _RUN, run_id)
    owner(surefoot.database_url, _ACTION, action_id, run_id)

    async def query(sql: str, /, **parameters: object) -> Any:
        return await surefoot.database.query(DEFAULT_TENANT, sql, **parameters)

    run = Run(RunId(run_id), DEFAULT_TENANT, "a", None, "nobody", query, surefoot.store)
    saved: list[ArtifactRef] = []
    for content in contents:
        async with surefoot.database.transaction("tool.transaction", DEFAULT_TENANT) as session:
            saved.append(await Tx(None, run, action_id, session).save_artifact(name, content, media_type=media_type))
    return saved
