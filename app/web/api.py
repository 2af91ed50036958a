"""The HTTP API. Every answer is JSON; every error is one sentence under `error` that says what to do."""

import logging
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.exceptions import HTTPException

from app.web.artifacts import artifact_routes
from app.web.desk import desk_routes
from app.web.limits import BodyLimit
from app.web.outbox import outbox_routes
from app.web.undo import undo_routes
from app.web.views import Started
from transactions import (
    Conflict,
    DatabaseUnavailable,
    Forbidden,
    InvalidInput,
    NotFound,
    RunState,
    StoreUnavailable,
    SurefootError,
    UnknownAgent,
)

if TYPE_CHECKING:
    from app.surefoot import Surefoot

_log = logging.getLogger("surefoot.web")
_STATUS: Mapping[type[Exception], int] = MappingProxyType(
    {
        NotFound: 404,
        UnknownAgent: 404,
        Conflict: 409,
        Forbidden: 403,
        InvalidInput: 422,
        DatabaseUnavailable: 503,
        StoreUnavailable: 503,
    }
)


class StartRun(BaseModel):
    model_config = ConfigDict(extra="forbid")
    agent: str
    input: JsonValue


class RunView(BaseModel):
    """One row of `surefoot.run_status`."""

    run_id: str
    agent: str
    agent_version: str | None
    state: str
    waiting_for: list[str] | None
    reason: str | None
    turns: int
    segment: int
    unsettled_actions: int
    open_deliveries: int
    output: JsonValue
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    what_to_do: str | None = Field(description="what a person has to do for it, if anything")


class EventView(BaseModel):
    seq: int
    kind: str
    data: JsonValue
    generation: int
    worker_id: str | None
    at: datetime


class EventPage(BaseModel):
    """`next_after`: give it as `after` for the next page."""

    events: list[EventView]
    next_after: int


class ApprovalView(BaseModel):
    """What is asked, of whom, and exactly what it is bound to."""

    approval_id: str
    run_id: str
    agent: str
    tool: str
    approver: str
    arguments: JsonValue
    binding: JsonValue
    requested_at: datetime
    expires_at: datetime


class Decide(BaseModel):
    model_config = ConfigDict(extra="forbid")
    decision: Literal["approve", "reject"]
    by: str = Field(description="who decides; recorded as unauthenticated until tokens exist")
    role: str | None = None
    reason: str | None = None


class Cancel(BaseModel):
    model_config = ConfigDict(extra="forbid")
    by: str = "unauthenticated"
    reason: str = "asked for"


def build_api(surefoot: "Surefoot") -> FastAPI:
    """The routes over one Surefoot object."""
    api = FastAPI(title="Surefoot", docs_url=None, redoc_url=None)
    api.add_middleware(BodyLimit)
    _errors(api)
    _run_routes(api, surefoot)
    _approval_routes(api, surefoot)
    desk_routes(api, surefoot)
    outbox_routes(api, surefoot)
    undo_routes(api, surefoot)
    artifact_routes(api, surefoot)
    _health_routes(api, surefoot)
    return api


def _run_routes(api: FastAPI, surefoot: "Surefoot") -> None:
    @api.post("/runs", status_code=202)
    async def start(body: StartRun, idempotency_key: Annotated[str | None, Header()] = None) -> Started:
        run_id = await surefoot.start(body.agent, body.input, key=idempotency_key)
        return Started(run_id=run_id, state=(await surefoot.status(run_id))["state"])

    @api.get("/runs")
    async def list_runs(
        state: RunState | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 50
    ) -> list[RunView]:
        return [RunView.model_validate(dict(row)) for row in await surefoot.runs(state=state, limit=limit)]

    @api.get("/runs/{run_id}")
    async def show(run_id: str) -> RunView:
        return RunView.model_validate(dict(await surefoot.status(run_id)))

    @api.get("/runs/{run_id}/events")
    async def events(
        run_id: str, after: Annotated[int, Query(ge=0)] = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> EventPage:
        rows = [EventView.model_validate(dict(row)) for row in await surefoot.events(run_id, after=after, limit=limit)]
        return EventPage(events=rows, next_after=rows[-1].seq if rows else after)

    @api.post("/runs/{run_id}/cancel")
    async def cancel(run_id: str, body: Cancel | None = None) -> RunView:
        asked = body or Cancel()
        await surefoot.cancel(run_id, by=asked.by, reason=asked.reason)
        return RunView.model_validate(dict(await surefoot.status(run_id)))


def _approval_routes(api: FastAPI, surefoot: "Surefoot") -> None:
    @api.get("/approvals")
    async def pending(limit: Annotated[int, Query(ge=1, le=500)] = 100) -> list[ApprovalView]:
        return [ApprovalView.model_validate(dict(row)) for row in await surefoot.pending_approvals(limit=limit)]

    @api.post("/approvals/{approval_id:path}/decision")
    async def decide(approval_id: str, body: Decide) -> Started:
        run_id = await surefoot.decide(approval_id, body.decision, by=body.by, role=body.role, reason=body.reason)
        return Started(run_id=run_id, state=(await surefoot.status(run_id))["state"])


def _health_routes(api: FastAPI, surefoot: "Surefoot") -> None:
    @api.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @api.get("/readyz")
    async def readyz(response: Response) -> dict[str, str]:
        """The database answers, and the worker in this process, if there is one, is not draining."""
        await surefoot.ready()
        if surefoot.worker is not None and surefoot.worker.draining.is_set():
            response.status_code = 503
            return {"status": "draining"}
        return {"status": "ready"}


def _errors(api: FastAPI) -> None:
    @api.exception_handler(SurefootError)
    async def told(_: Request, error: SurefootError) -> JSONResponse:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        return JSONResponse({"error": str(error)}, status, {"Retry-After": "2"} if status == 503 else None)

    @api.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        text = error.detail
        if error.status_code in (404, 405):
            text = f"There is no {request.method} {request.url.path} here: see the routes in app/README.md."
        return JSONResponse({"error": text}, error.status_code, error.headers)

    @api.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first: dict[str, Any] = dict(error.errors()[0])
        where = ".".join(str(part) for part in first["loc"])
        return JSONResponse(
            {"error": f"The request is not right: {where}: {first['msg']}. Correct it and send it again."}, 422
        )

    @api.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        _log.error("unexpected", exc_info=error)
        return JSONResponse({"error": "Something failed here that should not: see the server's log."}, 500)
