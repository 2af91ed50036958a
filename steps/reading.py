"""The tools by which a model reads artifacts in parts: offered to a run that has one."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from steps.spec import Spec
from steps.tools import Tools
from transactions import ArtifactDamaged, NotFound, Run

_LENGTH_MAX = 20_000
_MATCHES_MAX = 100
_CONTEXT = 80


def artifact_tools(run: Run) -> Tools[Any]:
    """Of this run alone: they see what its tenant has."""
    tools = Tools[Any](id="surefoot-artifacts")

    @tools.read
    async def read_artifact(  # pyright: ignore[reportUnusedFunction]  declared by the decorator
        ctx: RunContext[Any],  # noqa: ARG001
        name: str,
        version: int,
        start: int = 0,
        length: int = 4_000,
    ) -> dict[str, Any]:
        """Read a part of an artifact's text: `length` characters (at most 20000) from `start` on, counted from 0."""
        if start < 0 or not 1 <= length <= _LENGTH_MAX:
            raise ModelRetry(f"start is 0 or more, and length from 1 to {_LENGTH_MAX}.")
        text = await _text(run, name, version)
        part = text[start : start + length]
        end = start + len(part)
        return {"text": part, "start": start, "end": end, "characters": len(text), "more": end < len(text)}

    @tools.read
    async def search_artifact(  # pyright: ignore[reportUnusedFunction]
        ctx: RunContext[Any],  # noqa: ARG001
        name: str,
        version: int,
        text: str,
        limit: int = 20,
    ) -> dict[str, Any]:
        """Find a text in an artifact, in upper or lower case: the places, in characters from 0, with what is around.

        To read on from a place, give it to read_artifact as start.
        """
        if not text or not 1 <= limit <= _MATCHES_MAX:
            raise ModelRetry(f"Give a text to look for, and a limit from 1 to {_MATCHES_MAX}.")
        whole = await _text(run, name, version)
        matches: list[dict[str, Any]] = []
        folded, sought = _one_case(whole), _one_case(text)
        start = folded.find(sought)
        while start >= 0 and len(matches) < limit:
            around = whole[max(0, start - _CONTEXT) : start + len(text) + _CONTEXT]
            matches.append({"start": start, "around": around})
            start = folded.find(sought, start + len(text))
        return {"matches": matches, "more": start >= 0}

    return tools


def specs_of(tools: Tools[Any]) -> Mapping[str, Spec]:
    """What they answer is a part already, and is never kept as another artifact."""
    return {name: replace(spec, inline=True) for name, spec in tools.specs.items()}


def _one_case(text: str) -> str:
    """In lower case, of the same length. To find a text in that takes no longer whatever it is, as `re` may."""
    return text.replace("\u0130", "i").lower().replace("\u03c2", "\u03c3")


async def _text(run: Run, name: str, version: int) -> str:
    try:
        ref, content = await run.open_artifact(name, version)
    except (NotFound, ArtifactDamaged) as error:
        raise ToolFailed(str(error)) from error
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ToolFailed(
            f"{name} version {version} is {ref.media_type}, {ref.size_bytes} bytes, and no text."
        ) from error
