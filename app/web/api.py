"""The HTTP API. Every answer is JSON; every error is one sentence under `error` that says what to do."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from app.web import approvals, artifacts, desk, outbox, runs, undo
from app.web.health import health_routes
from app.web.limits import BodyLimit
from transactions import (
    Conflict,
    DatabaseUnavailable,
    Forbidden,
    InvalidInput,
    NotFound,
    StoreUnavailable,
    SurefootError,
    TransactionTooLong,
    Unauthenticated,
    UnknownAgent,
)

if TYPE_CHECKING:
    from app.surefoot import Surefoot

_log = logging.getLogger("surefoot.web")
_WHERE_CHARS_MAX = 100
_STATUS: Mapping[type[Exception], int] = MappingProxyType(
    {
        NotFound: 404,
        UnknownAgent: 404,
        Unauthenticated: 401,
        Conflict: 409,
        Forbidden: 403,
        InvalidInput: 422,
        DatabaseUnavailable: 503,
        StoreUnavailable: 503,
        TransactionTooLong: 503,
    }
)


def build_api(surefoot: "Surefoot") -> FastAPI:
    """The routes over one Surefoot object."""
    api = FastAPI(title="Surefoot", docs_url=None, redoc_url=None)
    api.add_middleware(BodyLimit)
    api.state.surefoot = surefoot
    _errors(api)
    for noun in (runs, undo, approvals, desk, outbox, artifacts):
        api.include_router(noun.router)
    health_routes(api, surefoot)
    return api


def build_health(surefoot: "Surefoot") -> FastAPI:
    """Only what probes ask, for a worker that serves nothing else."""
    api = FastAPI(title="Surefoot worker", docs_url=None, redoc_url=None, openapi_url=None)
    _errors(api)
    health_routes(api, surefoot)
    return api


def _errors(api: FastAPI) -> None:
    @api.exception_handler(SurefootError)
    async def told(_: Request, error: SurefootError) -> JSONResponse:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
        headers = {503: {"Retry-After": "2"}, 401: {"WWW-Authenticate": "Bearer"}}.get(status)
        return JSONResponse({"error": str(error)}, status, headers)

    @api.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        text = error.detail
        if error.status_code in (404, 405):
            text = f"There is no {request.method} {request.url.path} here: see the routes in app/README.md."
        return JSONResponse({"error": text}, error.status_code, error.headers)

    @api.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first: dict[str, Any] = dict(error.errors()[0])
        where = ".".join(str(part) for part in first["loc"])[:_WHERE_CHARS_MAX]
        return JSONResponse(
            {"error": f"The request is not right: {where}: {first['msg']}. Correct it and send it again."}, 422
        )

    @api.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        _log.error("unexpected", exc_info=error)
        return JSONResponse({"error": "Something failed here that should not: see the server's log."}, 500)
