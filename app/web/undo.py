"""Undoing over HTTP: what a run did and how it stands with undoing it, and asking for it."""

from typing import TYPE_CHECKING

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, JsonValue

from transactions.undo import Standing

if TYPE_CHECKING:
    from app.surefoot import Surefoot


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
    by: str = "unauthenticated"
    reason: str = "asked for"


def undo_routes(api: FastAPI, surefoot: "Surefoot") -> None:
    @api.get("/runs/{run_id}/undo")
    async def undoable(run_id: str) -> list[DoneView]:
        return [DoneView.model_validate(done) for done in await surefoot.undoable(run_id)]

    @api.post("/runs/{run_id}/undo", status_code=202)
    async def undo(run_id: str, body: Undo | None = None) -> list[DoneView]:
        asked = body or Undo()
        return [DoneView.model_validate(d) for d in await surefoot.undo(run_id, by=asked.by, reason=asked.reason)]
