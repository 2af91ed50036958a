"""Who may do what: principals of a tenant and their roles. A deployment is open until the first token is made."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, Forbidden, InvalidInput, NotFound
from transactions.ids import DEFAULT_TENANT, Tenant
from transactions.statements import load

_PRINCIPALS = load("principals")
_TENANT = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ROLE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_NAME_CHARACTERS_MAX = 200
_ROLES_MAX = 50


class Role(StrEnum):
    """What the product asks for. Other names are roles of the team's own, which approvals ask for."""

    VIEWER = "viewer"  # sees everything of its tenant, changes nothing
    OPERATOR = "operator"  # starts, cancels, releases and undoes runs, settles effects, redrives deliveries
    APPROVER = "approver"  # decides what it is asked for by name or by a role of the team's own
    ADMIN = "admin"  # makes principals and tokens


# An admin is no approver: who hands out rights does not decide by them unless that is said.
_INCLUDES: Mapping[Role, frozenset[Role]] = MappingProxyType(
    {
        Role.VIEWER: frozenset({Role.VIEWER}),
        Role.OPERATOR: frozenset({Role.VIEWER, Role.OPERATOR}),
        Role.APPROVER: frozenset({Role.VIEWER, Role.APPROVER}),
        Role.ADMIN: frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN}),
    }
)
UNAUTHENTICATED = "unauthenticated"
OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who acts, in which tenant. `authenticated`: somebody made sure that it is they.

    `roles`: those of its row, or of them what its token may; an unauthenticated one may everything of the product's.
    """

    tenant: Tenant
    name: str
    roles: frozenset[str]
    authenticated: bool

    def may(self, role: Role) -> bool:
        return any(role in _INCLUDES[own] for own in Role if own in self.roles)

    def need(self, role: Role) -> None:
        """Raises Forbidden."""
        if not self.may(role):
            has = ", ".join(sorted(self.roles)) or "none"
            raise Forbidden(f"This needs the role {role}, and {self.name} has: {has}. Ask an admin for it.")


def anyone(tenant: Tenant = DEFAULT_TENANT) -> Principal:
    """Whoever there is, while nobody has a token, or the application itself."""
    return Principal(tenant, UNAUTHENTICATED, frozenset(Role), authenticated=False)


def owner() -> Principal:
    """Whom Postgres has let in as the schema's owner."""
    return Principal(DEFAULT_TENANT, OWNER, frozenset({Role.ADMIN}), authenticated=True)


async def is_open(session: AsyncSession) -> bool:
    """Whether no token was ever made here, so that everyone on this machine may do everything."""
    row = await fetch_one(session, _PRINCIPALS["tokens_since"])
    return row is None or row["tokens_since"] is None


async def is_owner(session: AsyncSession) -> bool:
    """Whether this process's login owns the schema: the way back in when the last admin's token is lost."""
    row = await fetch_one(session, _PRINCIPALS["is_owner"])
    return row is not None and bool(row["is_owner"])


async def get(session: AsyncSession, tenant: Tenant, name: str) -> Principal:
    """Raises NotFound, Forbidden (disabled)."""
    row = await fetch_one(session, _PRINCIPALS["get"], tenant=tenant, name=name)
    if row is None:
        raise NotFound(f"No principal {name!r} in tenant {tenant}: make it with `surefoot principals set`.")
    if row["disabled_at"] is not None:
        raise Forbidden(f"{name} was disabled at {row['disabled_at']:%Y-%m-%d %H:%M:%S %Z}: ask an admin.")
    return Principal(tenant, row["name"], frozenset(row["roles"]), authenticated=True)


async def lost_right(session: AsyncSession, tenant: Tenant, name: str) -> str | None:
    """Why a run that they started may not go on. None, too, for a name that is no principal's: an application's own."""
    row = await fetch_one(session, _PRINCIPALS["get"], tenant=tenant, name=name)
    if row is None:
        return None
    if row["disabled_at"] is not None:
        return f"{name}, who started it, is disabled: enable them and release the run, or cancel it"
    if not Principal(tenant, name, frozenset(row["roles"]), authenticated=True).may(Role.OPERATOR):
        return f"{name}, who started it, is no operator any more: make them one and release the run, or cancel it"
    return None


async def page(session: AsyncSession, tenant: Tenant) -> Sequence[Mapping[str, Any]]:
    """`name`, `roles`, `created_at`, `changed_at`, `changed_by`, `disabled_at` of a tenant's principals, by name."""
    return await fetch_all(session, _PRINCIPALS["page"], tenant=tenant)


async def put(session: AsyncSession, tenant: Tenant, name: str, *, roles: Sequence[str], by: str) -> None:
    """Make a principal with these roles, or give it these instead of its own. Raises InvalidInput, NotFound."""
    check_name(name)
    await _check_tenant(session, tenant)
    await execute(session, _PRINCIPALS["put"], tenant=tenant, name=name, roles=check_roles(roles), by=by)


async def disable(session: AsyncSession, tenant: Tenant, name: str, *, by: str) -> None:
    """From now on it may nothing, and none of its tokens works. Raises NotFound."""
    await _change(session, "disable", tenant, name, by)


async def enable(session: AsyncSession, tenant: Tenant, name: str, *, by: str) -> None:
    """Raises NotFound."""
    await _change(session, "enable", tenant, name, by)


async def _change(session: AsyncSession, what: str, tenant: Tenant, name: str, by: str) -> None:
    if await fetch_one(session, _PRINCIPALS[what], tenant=tenant, name=name, by=by) is None:
        raise NotFound(f"No principal {name!r} in tenant {tenant}: see `surefoot principals list`.")


async def new_tenant(session: AsyncSession, tenant: str) -> None:
    """Raises InvalidInput, Conflict (it exists)."""
    if not _TENANT.fullmatch(tenant):
        raise InvalidInput(f"{tenant!r} is no name for a tenant: use 1 to 100 letters, digits, `_`, `.` and `-`.")
    if await fetch_one(session, _PRINCIPALS["new_tenant"], tenant=tenant) is None:
        raise Conflict(f"Tenant {tenant} exists: see `surefoot tenants list`.")


async def tenants(session: AsyncSession) -> Sequence[Mapping[str, Any]]:
    """`tenant`, `created_at` and how many `principals`, by name."""
    return await fetch_all(session, _PRINCIPALS["tenants"])


async def _check_tenant(session: AsyncSession, tenant: Tenant) -> None:
    if await fetch_one(session, _PRINCIPALS["tenant"], tenant=tenant) is None:
        raise NotFound(f"No tenant {tenant!r}: make it with `surefoot tenants create`.")


def check_name(name: str) -> str:
    """A principal's name. Raises InvalidInput."""
    if name in (UNAUTHENTICATED, OWNER) or not 1 <= len(name) <= _NAME_CHARACTERS_MAX or not name.isprintable():
        raise InvalidInput(
            f"{name[:50]!r} is no name for a principal: use 1 to {_NAME_CHARACTERS_MAX} printable characters, "
            f"but not {UNAUTHENTICATED!r} or {OWNER!r}."
        )
    return name


def check_roles(roles: Sequence[str]) -> list[str]:
    """Each once, sorted. Raises InvalidInput."""
    kept = sorted(set(roles))
    if not 1 <= len(kept) <= _ROLES_MAX or not all(_ROLE.fullmatch(role) for role in kept):
        raise InvalidInput(
            f"Give 1 to {_ROLES_MAX} roles of letters, digits, `_`, `.` and `-`: {', '.join(Role)}, and names of your "
            "own that approvals ask for, such as manager."
        )
    return kept
