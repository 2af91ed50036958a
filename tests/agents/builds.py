"""Other versions of the agents of `scripted.py`, as later builds of one application have them."""

import copy
import json
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from steps import RunLimits, RunRecord, Tools
from tests.agents.scripted import Deps, agent, tools


def _build(version: str, toolset: Tools[Deps] = tools, **state: Any) -> list[Any]:
    limits = {"scripted": RunLimits(), "hasty": RunLimits(inline_wait_s=0.1)}
    return [agent(name, limit, version=version, toolset=toolset, **state) for name, limit in limits.items()]


def _without(*names: str) -> Tools[Deps]:
    fewer = copy.copy(tools)
    fewer.tools = {name: tool for name, tool in tools.tools.items() if name not in names}
    fewer.specs = {name: spec for name, spec in tools.specs.items() if name not in names}
    return fewer


def one_note_more(record: RunRecord) -> RunRecord:
    """The script that a run was started with, and that its model reads, gets one more turn."""
    script = {"turns": [*record.input["turns"], [["note", {"text": "migrated"}]]]}  # type: ignore[call-overload, index]
    return RunRecord(script, [_prompted(message, json.dumps(script)) for message in record.messages])


def _prompted(message: ModelMessage, words: str) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return message
    parts = [replace(part, content=words) if isinstance(part, UserPromptPart) else part for part in message.parts]
    return replace(message, parts=parts)


def _drops_a_message(record: RunRecord) -> RunRecord:
    return RunRecord(record.input, record.messages[1:])


# Carries on what began before, and what was approved then.
COMPATIBLE = _build("2", keeps_approvals_of=("1",))
# Another state, and nothing is said of the one before.
INCOMPATIBLE = _build("3", state_version=2)
MIGRATING = _build("4", state_version=2, migrate={1: one_note_more})
SPOILING = _build("5", state_version=2, migrate={1: _drops_a_message})
# Does not know what a run has called.
WITHOUT_LOOK = _build("6", _without("look"))
WITHOUT_SEND = _build("7", _without("send"))
