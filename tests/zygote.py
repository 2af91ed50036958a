"""A process that has imported the product and forks it on demand, so that a test's worker starts in a moment.

`python -m tests.zygote` reads one JSON request a line and answers one a line. What it forks is a process like any
other: its own pid, environment and memory, `[-m MODULE | FILE] ARGUMENTS...` as `python` takes them, ended by SIGKILL.
"""

import contextlib
import gc
import json
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from typing import Any

IMPORTED = (
    "app.cli",
    "app.agents.monthly_report",
    "app.agents.ticket_triage",
    "app.demo.worlds.publishing",
    "app.demo.worlds.mailbox",
    "pytest",
)


def main() -> None:
    for name in IMPORTED:
        __import__(name)
    gc.collect()
    gc.freeze()  # what is imported stays shared between all of them
    print("ready", flush=True)
    arguments = _serve()
    if arguments is not None:
        _become(arguments)


def _serve() -> Sequence[str] | None:
    """Answer requests until the end of input; in a forked child, return what to become."""
    children: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            pid, status = os.waitpid(request["wait"], os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
            children.discard(pid)
            print(json.dumps(code), flush=True)
        elif (pid := os.fork()) == 0:
            return _child(request)
        else:
            children.add(pid)
            print(json.dumps(pid), flush=True)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def _child(request: dict[str, Any]) -> Sequence[str]:
    nothing = os.open(os.devnull, os.O_RDONLY)
    out, errors = (os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for name in ("out", "errors"))
    for target, source in enumerate((nothing, out, errors)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(request["env"])
    return request["arguments"]


def _become(arguments: Sequence[str]) -> None:
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  the zygote's had read ahead
    first, *rest = arguments
    if first == "-m":
        module, *rest = rest
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main()
