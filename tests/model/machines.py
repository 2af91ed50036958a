"""What the models share: one scene for a search, transactions that may die before their commit, guards taken away.

SUREFOOT_MODEL_EXAMPLES=2000 searches for longer, and at random.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.races.scenes import ADA, BOB, Scene, open_scene
from transactions import DEFAULT_TENANT, Session, Tenant
from transactions.statements import load

T = TypeVar("T")
Seen = Mapping[str, Any]
STEPS = 20
LONGER = os.environ.get("SUREFOOT_MODEL_EXAMPLES")
workers = st.sampled_from((ADA, BOB))
seldom = st.sampled_from((False, False, False, True))


class Died(Exception):
    """The process is gone before its commit."""


class Model(RuleBasedStateMachine):
    """A rule says what must happen, lets the database do it, and compares; then the invariants compare everything."""

    def __init__(self, scene: Scene, loop: asyncio.Runner) -> None:
        super().__init__()
        self.scene, self.loop = scene, loop

    def commit(
        self, body: Callable[[Session], Awaitable[T]], *, dies: bool = False, tenant: Tenant | None = DEFAULT_TENANT
    ) -> T | None:
        """What the body answers, in a transaction of its own; with `dies` nothing remains. tenant None: of a worker."""

        async def once() -> T | None:
            answer = None
            try:
                async with self._begun(tenant) as session:
                    answer = await body(session)
                    if dies:
                        raise Died
            except Died:
                pass
            return answer

        return self.loop.run(once())

    def _begun(self, tenant: Tenant | None) -> AbstractAsyncContextManager[Session]:
        database = self.scene.database
        return database.all_tenants("model") if tenant is None else database.transaction("model", tenant)

    def raised(
        self,
        body: Callable[[Session], Awaitable[Any]],
        *expected: type[BaseException],
        tenant: Tenant | None = DEFAULT_TENANT,
    ) -> bool:
        """Whether one of these is raised by the body, and so by its transaction."""
        try:
            self.commit(body, tenant=tenant)
        except expected:
            return True
        return False

    def rows(self, query: str, *parameters: object) -> list[Any]:
        """As the owner of the database."""
        return self.loop.run(self.scene.rows(query, *parameters))

    def teardown(self) -> None:
        self.rows("update surefoot.workers set state = 'live', ended_at = null where state <> 'live'")


def search(
    machine: Callable[[Scene, asyncio.Runner], RuleBasedStateMachine],
    url: str,
    *,
    examples: int,
    phases: Sequence[Phase] = tuple(Phase),
) -> None:
    """Play so many sequences on one database; each is a run, or a set of entries, of its own."""
    with asyncio.Runner() as loop:
        opened = open_scene(url)
        scene = loop.run(opened.__aenter__())
        try:
            run_state_machine_as_test(
                lambda: machine(scene, loop),
                settings=settings(
                    max_examples=int(LONGER or examples),
                    stateful_step_count=STEPS,
                    deadline=None,
                    database=None,
                    derandomize=LONGER is None,
                    phases=phases,
                    print_blob=False,
                ),
            )
        finally:
            loop.run(opened.__aexit__(None, None, None))


def changed(table: str, *changes: tuple[str, str, str]) -> Mapping[str, Any]:
    """The statements of a table with some of them spoilt: (name, what is in it, what is there instead)."""
    statements = dict(load(table))
    for name, guard, instead in changes:
        assert guard in statements[name].text, f"{name} has no {guard!r}"
        statements[name] = text(statements[name].text.replace(guard, instead))
    return statements


def is_missed(
    machine: Callable[[Scene, asyncio.Runner], RuleBasedStateMachine],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    modules: Sequence[ModuleType],
    attribute: str,
    instead: object,
    *,
    examples: int = 400,
) -> None:
    """The negative control: without this part of these modules the search fails."""
    for module in modules:
        monkeypatch.setattr(module, attribute, instead)
    with pytest.raises((AssertionError, DBAPIError)):
        search(machine, url, examples=examples, phases=[Phase.generate])
