"""Retention over HTTP, how long what is kept, what was removed, and, for an admin, removing it now."""

import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from app.web.who import Who

router = APIRouter()
FOREVER = "forever"
# A request has an answer within so long; what is left is said by `more`.
_SECONDS_MAX = 5.0


class PolicyView(BaseModel):
    """`agent`: null for all of the tenant's; `keep_s`: seconds, or `forever`."""

    kind: str
    agent: str | None
    keep_s: float | str
    changed_at: datetime
    changed_by: str


class TotalView(BaseModel):
    """What was removed of a kind in a day: `items` in `rows` of all tables."""

    day: date
    kind: str
    by: str
    items: int
    rows: int
    last_at: datetime


class PassView(BaseModel):
    kind: str
    begun_at: datetime


class SizeView(BaseModel):
    name: str
    table_bytes: int
    index_bytes: int
    rows: int = Field(description="about")


class RetentionView(BaseModel):
    """`keep`: the deployment's settings, in seconds or `forever`. `passes` and `sizes`: for its admin alone."""

    keep: dict[str, float | str]
    policies: list[PolicyView]
    removed: list[TotalView]
    passes: list[PassView]
    sizes: list[SizeView]


class Policy(BaseModel):
    """How long the tenant keeps a kind, of all its agents or of one: seconds, `forever`, or null: as the setting
    says.
    """

    model_config = ConfigDict(extra="forbid")
    kind: str
    keep_s: Annotated[float, Field(allow_inf_nan=False)] | str | None
    agent: str | None = None


class Run(BaseModel):
    model_config = ConfigDict(extra="forbid")
    dry_run: bool = False
    kinds: list[str] | None = None


class RemovedView(BaseModel):
    """`kept`: how many are old enough and stayed, by the reason; `more`: ask again for the rest."""

    model_config = ConfigDict(from_attributes=True)
    kind: str
    items: int
    rows: int
    kept: dict[str, int]
    more: bool


@router.get("/retention")
async def shown(who: Who) -> RetentionView:
    found = await who.retention()
    policies = [{**row, "agent": row["agent"] or None, "keep_s": _told(row["keep_s"])} for row in found.policies]
    return RetentionView.model_validate(
        {
            "keep": {kind: _told(seconds) for kind, seconds in found.keep.items()},
            "policies": policies,
            **{name: _dicts(getattr(found, name)) for name in ("removed", "passes", "sizes")},
        }
    )


@router.put("/retention/policies")
async def set_policy(who: Who, body: Policy) -> RetentionView:
    keep_s = body.keep_s
    if isinstance(keep_s, str):
        keep_s = math.inf if keep_s == FOREVER else math.nan  # which is no age, and is refused as such
    await who.set_retention(body.kind, keep_s, agent=body.agent)
    return await shown(who)


@router.post("/retention/run")
async def run(who: Who, body: Run | None = None) -> list[RemovedView]:
    asked = body or Run()
    done = await who.run_retention(kinds=asked.kinds, dry_run=asked.dry_run, seconds_max=_SECONDS_MAX)
    return [RemovedView.model_validate(removed) for removed in done]


def _told(seconds: float) -> float | str:
    return FOREVER if seconds == math.inf else seconds


def _dicts(rows: Any) -> list[Mapping[str, Any]]:
    return [dict(row) for row in rows]
