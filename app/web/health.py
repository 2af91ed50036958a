"""What probes ask: whether the process answers, and whether it should get work."""

from typing import TYPE_CHECKING

from fastapi import FastAPI, Response

if TYPE_CHECKING:
    from app.surefoot import Surefoot


def health_routes(api: FastAPI, surefoot: "Surefoot") -> None:
    """`/healthz` and `/readyz`; both ask for no token."""

    @api.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @api.get("/readyz")
    async def readyz(response: Response) -> dict[str, str]:
        """The database answers and has our schema, and the worker in this process renews its lease and stays."""
        standing = await surefoot.ready()
        if standing != "ready":
            response.status_code = 503
        return {"status": standing}
