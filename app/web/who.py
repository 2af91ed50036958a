"""Who asks: the token of a request, or anyone on this machine while no token was ever made."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.acting import Acting
from app.machine import is_loopback
from transactions import Forbidden

_bearer = HTTPBearer(auto_error=False, description="a token that `surefoot tokens create` made")


async def _acting(request: Request, shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Acting:
    """Raises Unauthenticated; Forbidden for who has no token and is not on this machine."""
    acting = await request.app.state.surefoot.authenticated(None if shown is None else shown.credentials)
    if not acting.who.authenticated and request.client is not None and not is_loopback(request.client.host):
        raise Forbidden("There are no tokens yet, so only this machine is served: run `surefoot tokens create` on it.")
    return acting


Who = Annotated[Acting, Depends(_acting)]
