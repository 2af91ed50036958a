"""Undoing over HTTP: what a run did and how it stands with undoing it, and asking for it."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, JsonValue

from app.web.who import Who
from transactions.undo import Standing

router = APIRouter()


class DoneView(BaseModel):
    """One effect of a run. `standing`: whether it can be undone, is under way, or was; `next`: what to do, in words."""

    model_config = ConfigDict(from_attributes=True)
    action_id: str
    tool: str
    request: JsonValue
    result: JsonValue
    standing: Standing
    undo_id: str | None
    why: str | None
    next: str


class Undo(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: str = "asked for"


@router.get("/runs/{run_id}/undo")
async def undoable(who: Who, run_id: str) -> list[DoneView]:
    return [DoneView.model_validate(done) for done in await who.undoable(run_id)]


@router.post("/runs/{run_id}/undo", status_code=202)
async def undo(who: Who, run_id: str, body: Undo | None = None) -> list[DoneView]:
    return [DoneView.model_validate(done) for done in await who.undo(run_id, reason=(body or Undo()).reason)]
