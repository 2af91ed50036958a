"""A service outside, on a thread of the test, so that a test decides when it answers.

    POST /things {reference, text}   makes one more thing and answers with it: it knows no idempotency keys
    GET  /things?reference=...       the things with that reference, oldest first

`held` makes requests wait after they have done their work and before they are answered, until the block ends; the next
`busy` ones are turned away with 429 and do nothing.
"""

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.kit import until

HELD_S_MAX = 60.0


@dataclass(frozen=True)
class Sent:
    """One POST as it arrived; `pid` is the sender's."""

    reference: str
    text: str
    pid: int


class Outside:
    """`sent` is what has arrived, in order; it is also what exists there."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.looked_up: list[str] = []
        self.busy = 0
        self._open = threading.Event()
        self._open.set()
        outside = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if outside.busy:
                    outside.busy -= 1
                    self._answer("busy", status=429)
                    return
                outside.sent.append(Sent(asked["reference"], asked["text"], int(self.headers["X-Pid"])))
                outside._open.wait(HELD_S_MAX)
                self._answer({"number": len(outside.sent), "text": asked["text"]})

            def do_GET(self) -> None:
                reference = parse_qs(urlsplit(self.path).query)["reference"][0]
                outside.looked_up.append(reference)
                things = [
                    {"number": number, "text": sent.text}
                    for number, sent in enumerate(list(outside.sent), start=1)
                    if sent.reference == reference
                ]
                self._answer(things)

            def _answer(self, body: object, status: int = 200) -> None:
                content = json.dumps(body).encode()
                with suppress(OSError):  # whoever asked may be dead by now
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a sender that was killed in the middle

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def env(self) -> Mapping[str, str]:
        """Where the tools of `tests/agents/scripted.py` find it."""
        return {"TEST_OUTSIDE_URL": f"http://127.0.0.1:{self._server.server_address[1]}"}

    def of(self, text: str) -> list[Sent]:
        return [sent for sent in self.sent if sent.text == text]

    @contextmanager
    def held(self) -> Generator[None]:
        """Within the block, nothing is answered that changes something."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def until_sent(self, count: int) -> None:
        until(f"{count} requests have arrived outside", lambda: len(self.sent) >= count)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
