"""A bound on what a request may send, however it is sent."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 2 * 1024 * 1024


class BodyLimit:
    """Refuses with 413 as soon as a body has passed the limit; nothing of it is kept."""

    def __init__(self, app: ASGIApp, bytes_max: int = BODY_BYTES_MAX) -> None:
        self._app = app
        self._bytes_max = bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._bytes_max:
                raise HTTPException(413, f"The request is over {self._bytes_max} bytes: send a reference instead.")
            return message

        await self._app(scope, counted if scope["type"] == "http" else receive, send)
