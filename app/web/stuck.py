"""The route of runs that are in a state beyond its limit."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from fastapi import FastAPI, Query
from pydantic import BaseModel

if TYPE_CHECKING:
    from app.surefoot import Surefoot


class StuckView(BaseModel):
    """One row of `surefoot.stuck_runs`. Times in seconds."""

    run_id: str
    agent: str
    state: str
    since: datetime
    limit_s: float
    seconds: float
    why: str
    what_to_do: str


def stuck_routes(api: FastAPI, surefoot: "Surefoot") -> None:
    """Before `/runs/{run_id}`, which would take it for a run's id."""

    @api.get("/runs/stuck")
    async def stuck(limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[StuckView]:
        return [StuckView.model_validate(dict(row)) for row in await surefoot.stuck(limit=limit)]
