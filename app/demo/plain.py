"""The same agent as a plain pydantic-ai loop: the same model, prompt and tool bodies, and no record of what was done.

    python -m app.demo.plain --month 2013-08 [--data FILE] --reference NAME

On the database of DATABASE_URL, with the publishing service of SUREFOOT_PUBLISHING_URL and the mail server of
SUREFOOT_SMTP_URL. Started again after it died, it begins at the beginning, as such a loop does. Its manager says yes
at once. It passes the failpoint `effect.after_send` where Surefoot does: the other side has done it, and nobody here
knows it yet.
"""

import argparse
import asyncio
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import EmailMessage
from email.utils import make_msgid
from typing import Any
from urllib.parse import urlsplit

import aiosmtplib
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from app.agents.monthly_report import monthly_report
from outbox import Mail
from steps import Action
from transactions import (
    DEFAULT_TENANT,
    ActionId,
    ArtifactRef,
    Database,
    EntryId,
    Run,
    RunId,
    Tx,
    failpoint,
)

MAIL_DOMAIN = "plain-loop.example"  # of its Message-IDs, by which its mails are told apart


@dataclass(frozen=True, slots=True)
class PlainRun(Run):
    """What the tools know of their run. What they save is kept in memory, and gone with the process."""

    saved: dict[tuple[str, int], bytes] = field(default_factory=dict[tuple[str, int], bytes])

    async def artifact(self, name: str, version: int) -> bytes:
        return self.saved[name, version]


class PlainTx(Tx[Any]):
    """One transaction; mail is sent where it is asked for."""

    async def save_artifact(self, name: str, content: bytes, *, media_type: str) -> ArtifactRef:
        assert isinstance(self.run, PlainRun)
        self.run.saved[name, 1] = content
        digest = hashlib.sha256(content).hexdigest()
        return ArtifactRef(name=name, version=1, sha256=digest, size_bytes=len(content), media_type=media_type)

    async def outbox(
        self,
        topic: str,  # noqa: ARG002
        payload: object,
        *,
        key: str | None = None,  # noqa: ARG002
        delay: timedelta = timedelta(0),  # noqa: ARG002
    ) -> EntryId:
        assert isinstance(payload, Mail)
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = (
            "surefoot@localhost",
            ", ".join(payload.to),
            payload.subject,
        )
        message["Message-ID"] = make_msgid(domain=MAIL_DOMAIN)
        message.set_content(payload.body)
        server = urlsplit(os.environ["SUREFOOT_SMTP_URL"])
        await aiosmtplib.send(message, hostname=server.hostname, port=server.port, use_tls=False, start_tls=False)
        return EntryId(message["Message-ID"])


@dataclass
class PlainToolset(WrapperToolset[Any]):
    """Calls each body where it stands: a transaction is one, an effect is sent, nothing is written down about it."""

    database: Database
    run: PlainRun
    reference: str

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        spec = monthly_report.specs[name]
        action_id = ActionId(self.reference)
        if spec.kind == "read":
            return await super().call_tool(name, tool_args, ctx, tool)
        await spec.work_before(ctx.deps, tool_args)
        if spec.kind == "transaction":
            async with self.database.transaction("plain.tool", DEFAULT_TENANT) as session:
                return await spec.body(PlainTx(ctx.deps, self.run, action_id, session), **tool_args)
        bound = {"sha256": hashlib.sha256(self.run.saved[tool_args["artifact"], tool_args["version"]]).hexdigest()}
        answer = await spec.body(Action(ctx.deps, action_id, 1, 0, self.run, bound), **tool_args)
        failpoint("effect.after_send")
        return answer


class PlainTools(AbstractCapability[Any]):
    """Puts that toolset around the agent's own."""

    def __init__(self, database: Database, run: PlainRun, reference: str) -> None:
        self._parts = database, run, reference

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return PlainToolset(toolset, *self._parts)


async def run_loop(*, month: str, data: str | None, reference: str) -> str:
    """One run of the agent from its beginning; what it says at the end."""
    database = Database(os.environ["DATABASE_URL"])

    async def query(sql: str, /, **parameters: object) -> Sequence[Any]:
        return await database.query(DEFAULT_TENANT, sql, **parameters)

    try:
        value = monthly_report.parse_input({"month": month, "data": data})
        run = PlainRun(RunId(reference), DEFAULT_TENANT, monthly_report.name, value, "plain", query)
        result = await monthly_report.agent.run(
            monthly_report.prompt_for(value),
            deps=await monthly_report.make_deps(run),
            capabilities=[PlainTools(database, run, reference)],
        )
        return str(result.output)
    finally:
        await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.demo.plain")
    parser.add_argument("--month", required=True)
    parser.add_argument("--data")
    parser.add_argument("--reference", required=True)
    given = parser.parse_args()
    print("done " + asyncio.run(run_loop(month=given.month, data=given.data, reference=given.reference)), flush=True)


if __name__ == "__main__":
    main()
