"""Who asks: the token of a request, or anyone on this machine while no token was ever made."""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from app.acting import Acting
from app.machine import is_loopback
from transactions import Forbidden

_ONLY_HERE = "There are no tokens yet, so only this machine is served: run `surefoot tokens create` on it."
_bearer = HTTPBearer(auto_error=False, description="a token that `surefoot tokens create` made")


async def _acting(request: Request, shown: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Acting:
    """Raises Unauthenticated; Forbidden for who has no token and is not on this machine."""
    acting = await request.app.state.surefoot.authenticated(None if shown is None else shown.credentials)
    if acting.who.authenticated or request.client is None:
        return acting
    # By both: a page that a browser of this machine has loaded may ask here under a name of its own.
    if not is_loopback(request.client.host) or not is_loopback(request.url.hostname or ""):
        raise Forbidden(_ONLY_HERE)
    return acting


Who = Annotated[Acting, Depends(_acting)]
