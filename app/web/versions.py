"""Application versions over HTTP; holding, releasing and moving runs."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from app.web.runs import RunView
from app.web.who import Who

router = APIRouter()


class VersionView(BaseModel):
    """One agent of one application version."""

    n: int
    version: str
    agent: str
    agent_version: str
    state_version: int
    reads: list[int] = Field(description="the versions of a run's state that it can carry on")
    is_current: bool
    current_since: datetime | None = Field(description="null: no worker of it was ever ready")
    current_by: str
    first_seen_at: datetime
    workers: int = Field(description="that take work")
    draining: int
    runs: int = Field(description="not over, and begun by it last")
    bound_runs: int = Field(description="those of them that the current version cannot carry on")


class Use(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: str


class Hold(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: str


class Move(BaseModel):
    model_config = ConfigDict(extra="forbid")
    to: str | None = None


class MoveAll(BaseModel):
    model_config = ConfigDict(extra="forbid")
    begun_by: str
    to: str | None = None


class MovedView(BaseModel):
    """`version`: which has the run from its next boundary on; null: none that lives can."""

    run_id: str
    version: str | None


class MovedAllView(BaseModel):
    run_ids: list[str]
    refused: dict[str, str]


@router.get("/versions")
async def versions(who: Who) -> list[VersionView]:
    return [VersionView.model_validate(dict(row)) for row in await who.versions()]


@router.post("/versions/current")
async def use(who: Who, body: Use) -> Use:
    return Use(version=await who.use_version(body.version))


@router.post("/runs/move")
async def move_all(who: Who, body: MoveAll) -> MovedAllView:
    moved = await who.move_all(begun_by=body.begun_by, to=body.to)
    return MovedAllView(run_ids=[*moved.run_ids], refused={**moved.refused})


@router.post("/runs/{run_id}/move")
async def move(who: Who, run_id: str, body: Move | None = None) -> MovedView:
    return MovedView(run_id=run_id, version=await who.move(run_id, to=(body or Move()).to))


@router.post("/runs/{run_id}/hold")
async def hold(who: Who, run_id: str, body: Hold) -> RunView:
    await who.hold(run_id, reason=body.reason)
    return RunView.model_validate(dict(await who.status(run_id)))


@router.post("/runs/{run_id}/release")
async def release(who: Who, run_id: str) -> RunView:
    await who.release(run_id)
    return RunView.model_validate(dict(await who.status(run_id)))
