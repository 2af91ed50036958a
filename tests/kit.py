"""Processes for tests: the outside world, workers that can be killed at a point, and waiting for a state."""

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import psycopg
from psycopg.rows import dict_row

from app import Surefoot
from app.acting import Acting
from app.demo.worlds.mailbox import Mail, Submission, mails, submissions
from app.demo.worlds.publishing import publications, requests
from transactions.deciding import Decision

T = TypeVar("T")
PATIENCE_S = 60.0


def until(what: str, look: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """The first true answer of `look`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + patience_s
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what}; last answer {answer!r}")
        time.sleep(0.02)


async def acting(surefoot: Surefoot, name: str, *roles: str) -> Acting:
    """Who acts as a principal of this name, which is made with these roles."""
    await surefoot.set_principal(name, roles=roles)
    return await surefoot.acting_as(name)


class Zygote:
    """Forks processes that have the product imported already; see `tests/zygote.py`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.zygote"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def fork(self, out: Path, errors: Path, arguments: Sequence[str], env: Mapping[str, str]) -> int:
        files = {"out": str(out), "errors": str(errors)}
        return int(self._ask({**files, "arguments": list(arguments), "env": dict(env)}))

    def exit_code(self, pid: int) -> int | None:
        """None while it runs; -9 for SIGKILL. To be asked until it is known, and not again."""
        return self._ask({"wait": pid})

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """End it and whatever it forked."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(PATIENCE_S)


class Process:
    """A child process whose output goes to `log`, its errors too unless `errors` is given. Ended by `kill`."""

    def __init__(
        self,
        log: Path,
        arguments: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        errors: Path | None = None,
        zygote: Zygote | None = None,
    ) -> None:
        self.log = log
        self._zygote = zygote
        self._code: int | None = None
        everything = {**os.environ, **(env or {})}
        if zygote is not None:
            self.pid = zygote.fork(log, errors or log, arguments, everything)
            return
        with log.open("ab") as out, (errors or log).open("ab") as err:
            self._child = subprocess.Popen(
                [sys.executable, *arguments], stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=everything
            )
        self.pid = self._child.pid

    def exit_code(self) -> int | None:
        """None while it runs; -9 for SIGKILL."""
        if self._code is None:
            self._code = self._child.poll() if self._zygote is None else self._zygote.exit_code(self.pid)
        return self._code

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def until_it_says(self, words: str) -> str:
        """The first line that contains `words`."""

        def look() -> str | None:
            ended = self.exit_code()
            found = next((line for line in self.said().splitlines() if words in line), None)
            if found is None and ended is not None:
                raise AssertionError(f"process ended with {ended} before it said {words!r}:\n{self.said()}")
            return found

        found = until(f"the process says {words!r}", look)
        assert found is not None
        return found

    def until_it_dies(self) -> int:
        """The wait status: -9 for SIGKILL."""
        until(f"process {self.pid} ends", lambda: self.exit_code() is not None)
        code = self.exit_code()
        assert code is not None
        return code

    def until_it_stops(self) -> None:
        """Until SIGSTOP has frozen it."""
        stat = Path(f"/proc/{self.pid}/stat")
        until(f"process {self.pid} is stopped", lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it has not ended."""
        if self.exit_code() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.until_it_dies()


class World:
    """The publishing service and the mailbox. Their own files are the judge."""

    def __init__(self, folder: Path, zygote: Zygote | None = None) -> None:
        self.publishing_file = folder / "publishing.sqlite"
        self.mail_file = folder / "mail.sqlite"
        self._folder = folder
        self._zygote = zygote
        self._processes: list[Process] = []
        self.publishing_url = ""
        self.smtp_url = ""

    def __enter__(self) -> Self:
        self.publishing_url = self._start("publishing", self.publishing_file)
        self.smtp_url = self._start("mailbox", self.mail_file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()

    def _start(self, name: str, file: Path) -> str:
        process = Process(
            self._folder / f"{name}.log",
            ["-m", f"app.demo.worlds.{name}", "--port", "0", "--file", str(file)],
            zygote=self._zygote,
        )
        self._processes.append(process)
        return process.until_it_says("ready ").partition(" ")[2].strip()

    def publications(self) -> list[Any]:
        return list(publications(self.publishing_file))

    def publish_requests(self) -> list[Any]:
        """POST requests that reached the publishing service."""
        return [request for request in requests(self.publishing_file) if request.method == "POST"]

    def mails(self) -> list[Mail]:
        return list(mails(self.mail_file))

    def submissions(self) -> list[Submission]:
        """Messages that reached the mailbox, those too that repeat one it has."""
        return list(submissions(self.mail_file))


class Site:
    """Workers on one database and one world, with short leases so that a death is seen soon."""

    def __init__(self, database_url: str, world: World, folder: Path, zygote: Zygote | None = None) -> None:
        self.database_url = database_url
        self._zygote = zygote
        self.world = world
        self.folder = folder
        self.workers: list[Process] = []
        self._clients: list[httpx.Client] = []
        self.env = {
            "DATABASE_URL": database_url,
            "SUREFOOT_PUBLISHING_URL": world.publishing_url,
            "SUREFOOT_SMTP_URL": world.smtp_url,
            "SUREFOOT_LEASE_S": "10",
            "SUREFOOT_WATCHDOG_S": "0.5",
            "SUREFOOT_QUEUE_POLL_S": "0.1",
            "SUREFOOT_RELAY_POLL_S": "0.3",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        for worker in self.workers:
            worker.kill()
            if kind is not None:
                print(f"--- worker {worker.pid}\n{worker.said()}")

    def worker(
        self,
        failpoint: str | None = None,
        *,
        command: Sequence[str] = ("worker",),
        broken: Callable[[], None] | None = None,
        **env: str,
    ) -> Process:
        """Start a worker process; with `failpoint` (`name:n` or `*:n`) it kills itself there.

        broken: a function at the top of a test file, called in the new process before the product starts there, to
        replace a part of it.
        """
        armed = {"SUREFOOT_FAILPOINT": failpoint} if failpoint else {}
        log = self.folder / f"worker-{len(self.workers)}.log"
        program = ["app.cli"]
        if broken is not None:
            program = ["tests.broken", f"{inspect.getfile(broken)}:{broken.__name__}"]
        process = Process(log, ["-m", *program, *command], {**self.env, **armed, **env}, zygote=self._zygote)
        self.workers.append(process)
        return process

    def working(self, failpoint: str | None = None, *, broken: Callable[[], None] | None = None, **env: str) -> Process:
        """Start a worker and wait until it works."""
        process = self.worker(failpoint, broken=broken, **env)
        process.until_it_says("works as")
        return process

    def serve(
        self, failpoint: str | None = None, *, broken: Callable[[], None] | None = None, **env: str
    ) -> tuple[Process, httpx.Client]:
        """Start `surefoot serve` and a client of its API."""
        process = self.worker(failpoint, command=("serve", "--port", "0"), broken=broken, **env)
        url = process.until_it_says("surefoot serves ").split()[2]
        client = httpx.Client(base_url=url, trust_env=False, timeout=30)
        self._clients.append(client)
        return process, client

    def command(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run one `surefoot` command to its end."""
        words = ["-m", "app.cli", *arguments]
        out, errors = self.folder / "command.out", self.folder / "command.err"
        out.unlink(missing_ok=True)
        errors.unlink(missing_ok=True)
        process = Process(out, words, {**self.env, **env}, errors=errors, zygote=self._zygote)
        code = process.until_it_dies()
        return subprocess.CompletedProcess(words, code, out.read_text(), errors.read_text())

    def rows(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        """Rows of one statement, as the database's owner sees them: all tenants."""
        with self._asking() as ask:
            return ask(query, *parameters)

    @contextmanager
    def _asking(self, **options: str) -> Generator[Callable[..., list[dict[str, Any]]]]:
        """The same, for several on one connection."""
        with psycopg.connect(self.database_url, autocommit=True, row_factory=dict_row, **options) as connection:

            def ask(query: str, *parameters: object) -> list[dict[str, Any]]:
                cursor = connection.execute(query.encode(), parameters, prepare=False)
                return cursor.fetchall() if cursor.description else []

            yield ask

    def sign_in(self, name: str, *roles: str) -> dict[str, str]:
        """Make a token of a principal with these roles, for every command from here on. Headers for the API."""

        async def made() -> str:
            surefoot = Surefoot(self.database_url, [])
            await surefoot.set_principal(name, roles=roles)
            token = await surefoot.create_token(name)
            await surefoot.close()
            return token

        self.env["SUREFOOT_TOKEN"] = asyncio.run(made())
        return {"Authorization": f"Bearer {self.env['SUREFOOT_TOKEN']}"}

    def forced(self, query: str, *parameters: object) -> list[dict[str, Any]]:
        """The same, of a statement that breaks what the triggers of the database keep."""
        with self._asking(options="-c session_replication_role=replica") as ask:
            return ask(query, *parameters)

    def start(self, agent: str = "monthly_report", input: str = '{"month": "2013-08"}', key: str | None = None) -> str:
        """Start a run by SQL, as any other program would."""
        return self.rows("select surefoot.start_run(%s, %s::jsonb, %s) as run_id", agent, input, key)[0]["run_id"]

    def state(self, run_id: str) -> str:
        return self.rows("select state from surefoot.runs where run_id = %s", run_id)[0]["state"]

    def until_state(self, run_id: str, *states: str) -> str:
        """Wait for one of the states; fails early when the run ends in another."""

        def look() -> str | None:
            [row] = ask("select state, reason from surefoot.runs where run_id = %s", run_id)
            state = row["state"]
            if state not in states and state in ("completed", "failed", "cancelled", "held"):
                raise AssertionError(f"run {run_id} is {state}: {row['reason']}")
            return state if state in states else None

        with self._asking() as ask:
            found = until(f"run {run_id} is {states}", look)
        assert found is not None
        return found

    def approve(self, run_id: str, decision: Decision = "approve") -> None:
        """Decide the run's pending approval, as a manager."""
        row = self.rows("select approval_id from surefoot.approvals where run_id = %s and state = 'pending'", run_id)[0]

        async def decide() -> None:
            surefoot = Surefoot(self.database_url, [])
            ada = await acting(surefoot, "ada", "approver", "manager")
            await ada.decide(row["approval_id"], decision)
            await surefoot.close()

        asyncio.run(decide())

    def cancel(self, run_id: str) -> None:
        """Cancel the run, as a person; returns once that is committed."""

        async def cancel() -> None:
            surefoot = Surefoot(self.database_url, [])
            await (await acting(surefoot, "ada", "operator")).cancel(run_id, reason="the wrong month")
            await surefoot.close()

        asyncio.run(cancel())

    def until_quiet(self, run_id: str) -> None:
        """Wait until nothing of the run is left to deliver or to execute."""
        left = (
            "select (select count(*) from surefoot.outbox_deliveries d join surefoot.outbox_entries e using (entry_id) "
            "where e.run_id = %s and d.state in ('pending', 'claimed')) + (select count(*) from dbos.workflow_status "
            "where workflow_uuid like %s || ':%%' and status in ('PENDING', 'ENQUEUED')) as n"
        )
        with self._asking() as ask:
            until(f"run {run_id} is quiet", lambda: ask(left, run_id, run_id)[0]["n"] == 0)
