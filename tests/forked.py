"""Processes of their own that start in milliseconds: forked from one that has imported the product and runs nothing.

`call` runs a function and hands back its value; `surefoot` runs one command of the command line. Each gets its own
environment and its own output files, and leaves nothing behind: no engine, no module state.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

R = TypeVar("R")
PATIENCE_S = 60.0
_PRODUCT = (
    "SUREFOOT_",
    "DATABASE_URL",
    "DBOS_",
    "PG",
    "ANTHROPIC_",
    "OPENAI_",
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit code (negative: the signal) and what it said."""

    returncode: int
    stdout: str
    stderr: str


def call(
    function: Callable[..., R], *arguments: object, env: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S
) -> R:
    """The value of `function(*arguments)` in a process of its own. Fails with that process's traceback and output.

    The function belongs to a module that can be imported; arguments and value can be pickled.
    """
    ours, theirs = _context().Pipe(duplex=False)
    ended = _run(_value, (theirs, function, arguments), env=env, cwd=None, patience_s=patience_s, mine=theirs)
    with ours:
        good, value = ours.recv() if ours.poll(0) else (False, f"it ended with {ended.returncode}")
    if not good:
        raise AssertionError(f"{function.__name__}: {value}\n--- it said\n{ended.stdout}{ended.stderr}")
    return value


def exit_code(function: Callable[..., object], *arguments: object, patience_s: float = PATIENCE_S) -> int:
    """How the process of a function ends that is not to return: -9 for SIGKILL."""
    return _run(function, arguments, env=None, cwd=None, patience_s=patience_s).returncode


async def until_async(look: Callable[[], bool], patience_s: float = PATIENCE_S / 2) -> None:
    """Until `look` is true. Raises TimeoutError."""
    async with asyncio.timeout(patience_s):
        while not look():  # noqa: ASYNC110  what is looked at is in the database
            await asyncio.sleep(0.02)


def surefoot(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, patience_s: float = PATIENCE_S
) -> Ended:
    """Run `surefoot ARGUMENTS` to its end. `env` adds to an environment that says nothing about Surefoot."""
    return _run(_command, (arguments,), env=env, cwd=cwd, patience_s=patience_s)


def plain_environment() -> dict[str, str]:
    """The environment without anything that configures Surefoot, Postgres or a model."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_PRODUCT)}


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["app.cli", "tests.contract.dbos_cases"])
    return context


def _run(
    target: Callable[..., None],
    arguments: tuple[object, ...],
    *,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    patience_s: float,
    mine: Connection | None = None,
) -> Ended:
    with tempfile.TemporaryDirectory(prefix="forked-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        environment = {**plain_environment(), **(env or {})}
        process = _context().Process(
            target=_child, args=(target, arguments, environment, str(cwd or Path.cwd()), str(out), str(err))
        )
        process.start()
        if mine is not None:
            mine.close()
        process.join(patience_s)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            raise AssertionError(f"not done in {patience_s} s:\n{out.read_text()}{err.read_text()}")
        code = process.exitcode
        process.close()
        return Ended(code, out.read_text() if out.exists() else "", err.read_text() if err.exists() else "")


def _child(
    target: Callable[..., None],
    arguments: tuple[object, ...],
    env: Mapping[str, str],
    cwd: str,
    out: str,
    err: str,
) -> None:
    """Become a fresh process: its own session, environment, folder and output."""
    os.setsid()
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    if path := env.get("PYTHONPATH"):
        sys.path[:0] = path.split(os.pathsep)
    target(*arguments)


def _value(connection: Connection, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    try:
        answer: tuple[bool, object] = (True, function(*arguments))
    except BaseException:
        answer = (False, traceback.format_exc())
    connection.send(answer)


def _command(arguments: tuple[str, ...]) -> None:
    from app.cli import main

    sys.argv = ["surefoot", *arguments]
    main(prog_name="surefoot")
