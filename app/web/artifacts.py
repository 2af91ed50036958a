"""Artifacts over HTTP. Names may hold anything, so they are asked for in the query and never part of a path."""

import re
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel

from app.web.who import Who
from transactions import ArtifactRef

router = APIRouter()
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?[\w-]+=[\w-]+)*", re.ASCII)
Version = Annotated[int, Query(ge=1, le=2**31 - 1)]


class ArtifactView(ArtifactRef):
    run_id: str
    created_at: datetime


class DifferenceView(BaseModel):
    """`diff`: a unified diff, or null and `why`; `cut`: its end was left out."""

    old: ArtifactRef
    new: ArtifactRef
    same: bool
    diff: str | None
    cut: bool
    why: str | None


@router.get("/artifacts")
async def listed(
    who: Who, name: str | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> list[ArtifactView]:
    return [ArtifactView.model_validate(dict(row)) for row in await who.artifacts(name, limit=limit)]


@router.get("/artifacts/content", response_class=Response)
async def content(
    who: Who, name: str, version: Version, if_none_match: Annotated[str | None, Header()] = None
) -> Response:
    """The bytes, verified; to be saved, and never shown as a page of ours."""
    ref, found = await who.open_artifact(name, version)
    headers = _headers(ref)
    if if_none_match is not None and headers["ETag"] in re.split(r"\s*,\s*(?:W/)?", if_none_match.strip()):
        return Response(status_code=304, headers=headers)
    return Response(found, media_type=_media_type(ref), headers=headers)


@router.get("/artifacts/difference")
async def difference(who: Who, name: str, old: Version, new: Version) -> DifferenceView:
    return DifferenceView.model_validate(await who.artifact_difference(name, old, new), from_attributes=True)


def _headers(ref: ArtifactRef) -> dict[str, str]:
    return {
        "ETag": f'"{ref.sha256}"',
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(ref.name.rpartition('/')[2], safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
    }


def _media_type(ref: ArtifactRef) -> str:
    """What it was saved as, if that is a media type and cannot say anything else in a header."""
    return ref.media_type if _MEDIA_TYPE.fullmatch(ref.media_type) else "application/octet-stream"
