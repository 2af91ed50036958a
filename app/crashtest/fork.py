"""A warmed process that has imported everything, and forks workers from it in milliseconds.

`python -m app.crashtest.fork` reads one JSON request a line and answers one a line:

    {"module": M, "arguments": [...], "env": {...}, "log": FILE, "before": ["MODULE:FUNCTION", ...]}    the pid
    {"wait": PID}                               null while it runs, else how it ended (negative: the signal); then once

What it forks is a process of its own: its own pid, session, environment and log. It ends with the warmed process, and
that with its standard input. Linux and macOS.
"""

import asyncio
import contextlib
import gc
import json
import os
import runpy
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from transactions import SurefootError

_ROOT = Path(__file__).parents[__name__.count(".") if __name__ != "__main__" else 2]
_WARM = (
    "app.cli",
    "app.crashtest.controls",
    "app.crashtest.person",
    "app.demo.worlds.mailbox",
    "app.demo.worlds.publishing",
    "uvicorn",
)
_LINE_BYTES_MAX = 1 << 20
_END_S = 10.0


class ForkFailed(SurefootError):
    """The warmed process could not be started; the message says why."""


@dataclass(slots=True)
class Forks:
    """The client of one warmed process. Use it as an async context manager; leaving it ends all that was forked."""

    env: Mapping[str, str]
    log: Path
    _process: asyncio.subprocess.Process | None = None
    _turn: asyncio.Lock | None = None

    async def __aenter__(self) -> Self:
        """Start it and wait until it is warm, about 2 s. Raises ForkFailed, e.g. when an agent cannot be loaded."""
        found = [str(_ROOT), *filter(None, [self.env.get("PYTHONPATH")])]
        self._turn = asyncio.Lock()
        with self.log.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                __name__,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**self.env, "PYTHONPATH": os.pathsep.join(found)},
                limit=_LINE_BYTES_MAX,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        if await self._process.stdout.readline() != b"ready\n":
            await self._process.wait()
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise ForkFailed(f"The warmed process did not start: {lines[-1]} (its log: {self.log})")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def fork(
        self, module: str, arguments: Sequence[str], *, env: Mapping[str, str], log: Path, before: Sequence[str] = ()
    ) -> int:
        """Run `python -m module arguments` in a fork; its pid. `before`: functions to call there first."""
        return await self._ask(
            {"module": module, "arguments": [*arguments], "env": {**env}, "log": str(log), "before": [*before]}
        )

    async def exit_code(self, pid: int) -> int | None:
        """None while it runs; negative: the signal that ended it. Not to be asked again once it is known."""
        return await self._ask({"wait": pid})

    async def _ask(self, request: Mapping[str, object]) -> Any:
        assert self._process is not None
        assert self._turn is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            line = await self._process.stdout.readline()
        if not line:
            raise ForkFailed(f"The warmed process is gone: see {self.log}.")
        return json.loads(line)


def main() -> None:
    """Be the warmed process; in a forked child, become what was asked for."""
    from app.loading import load_agents

    for name in _WARM:
        import_module(name)
    load_agents(os.environ.get("SUREFOOT_AGENTS"))
    gc.collect()
    gc.freeze()  # what is imported stays shared between all of them
    print("ready", flush=True)  # noqa: T201  the answer to whoever started it
    request = _serve()
    if request is not None:
        _become(request)


def _serve() -> dict[str, Any] | None:
    """Answer until the end of input; in a forked child, return the request it has to fulfil."""
    children: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            pid, status = os.waitpid(request["wait"], os.WNOHANG)
            children.discard(pid)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                return request
            children.add(answer)
        print(json.dumps(answer), flush=True)  # noqa: T201
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def _become(request: Mapping[str, Any]) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, nothing), (1, out), (2, out)):
        os.dup2(source, target)
    sys.stdin = os.fdopen(0, closefd=False)  # the warmed process had read ahead
    os.environ.clear()
    os.environ.update(request["env"])
    for before in request["before"]:
        module, _, function = before.partition(":")
        getattr(import_module(module), function)()
    sys.argv = [request["module"], *request["arguments"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that it is imported already is the point
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
