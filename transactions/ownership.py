"""Whose something is, asked in code: row-level security says the same, and either alone keeps tenants apart."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import fetch_one
from transactions.errors import NotFound
from transactions.ids import Tenant
from transactions.statements import load

_OWNERSHIP = load("ownership")
Noun = Literal["run", "approval", "action", "entry"]
_LISTS: Mapping[Noun, str] = MappingProxyType(
    {"run": "runs", "approval": "approvals", "action": "actions", "entry": "outbox"}
)


async def require(session: AsyncSession, tenant: Tenant, noun: Noun, id: str) -> None:
    """Raises NotFound for what is another tenant's, in the words for what there is not."""
    row = await fetch_one(session, _OWNERSHIP[noun], id=id)
    if row is None or row["tenant"] != tenant:
        raise NotFound(f"No {noun} {id}: see `surefoot {_LISTS[noun]} list`.")
