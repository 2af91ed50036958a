"""API tokens: `sf_{id}_{secret}`. Only the secret's hash is kept, so a token is shown once, when it is made.

Nothing here is bound to a tenant by row-level security: whoever shows a token is of none yet. The caller names it.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from transactions import principals
from transactions.database import execute, fetch_all, fetch_one
from transactions.errors import Conflict, InvalidInput, NotFound, Unauthenticated
from transactions.ids import Tenant
from transactions.principals import Principal, Role
from transactions.statements import load

_TOKENS = load("tokens")
_TOKEN = re.compile(r"sf_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
EXPIRES_MAX = timedelta(days=366)
# How exact `last_used_at` is: a write for every request would cost more than it tells.
_USED_EVERY_S = 60.0


async def create(
    session: AsyncSession,
    tenant: Tenant,
    principal: str,
    *,
    scopes: Sequence[str] | None,
    expires: timedelta,
    by: str,
) -> str:
    """A new token of a principal, to be shown once. scopes: what it may of the principal's roles; None: all.

    The first one closes the deployment to whoever has none. Raises NotFound, Forbidden, InvalidInput (also when the
    first one is no admin's).
    """
    who = await principals.get(session, tenant, principal)
    if not timedelta(0) < expires <= EXPIRES_MAX:
        raise InvalidInput(f"A token expires after some time, at most {EXPIRES_MAX.days} days: give another time.")
    scoped = None if scopes is None else principals.check_roles(scopes)
    if scoped is not None and (more := sorted(set(scoped) - who.roles)):
        raise InvalidInput(f"{principal} has no role {', '.join(more)}: give it first, `surefoot principals set`.")
    admin = Role.ADMIN in (who.roles if scoped is None else scoped)
    if not admin and await principals.is_open(session):
        raise InvalidInput("The first token must be an admin's, or nobody could make another: make that one first.")
    token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    await execute(
        session,
        _TOKENS["insert"],
        token_id=token_id,
        tenant=tenant,
        principal=principal,
        secret_hash=_hash(secret),
        scopes=scoped,
        by=by,
        expires_s=expires.total_seconds(),
    )
    await execute(session, _TOKENS["close_the_deployment"])
    return f"sf_{token_id}_{secret}"


async def authenticate(session: AsyncSession, token: str) -> Principal:
    """Whose token it is, with the roles that it has now. Raises Unauthenticated."""
    parts = _TOKEN.fullmatch(token)
    row = None
    if parts is not None:
        row = await fetch_one(session, _TOKENS["with_principal"], token_id=parts[1], every_s=_USED_EVERY_S)
    if parts is None or row is None or not hmac.compare_digest(row["secret_hash"], _hash(parts[2])):
        raise Unauthenticated("This is no token of Surefoot's: give one that `surefoot tokens create` made.")
    if row["revoked_at"] is not None:
        raise Unauthenticated(f"Token {parts[1]} was revoked: ask an admin for another.")
    if row["is_over"]:
        raise Unauthenticated(f"Token {parts[1]} expired at {row['expires_at']:%Y-%m-%d %H:%M %Z}: ask for another.")
    if row["disabled_at"] is not None:
        raise Unauthenticated(f"{row['principal']} is disabled: ask an admin.")
    if row["use_is_stale"]:
        await execute(session, _TOKENS["touch"], token_id=parts[1])
    roles = frozenset[str](row["roles"])
    if row["scopes"] is not None:
        roles &= frozenset[str](row["scopes"])
    return Principal(Tenant(row["tenant"]), row["principal"], roles, authenticated=True)


async def page(session: AsyncSession, tenant: Tenant) -> Sequence[Mapping[str, Any]]:
    """A tenant's tokens, oldest first: id, whose, scopes, how they stand, when last used. Never a secret."""
    return await fetch_all(session, _TOKENS["page"], tenant=tenant)


async def revoke(session: AsyncSession, tenant: Tenant, token_id: str, *, by: str) -> str:
    """From this commit on it opens nothing. Whose it was. Raises NotFound, Conflict (revoked before)."""
    row = await fetch_one(session, _TOKENS["revoke"], tenant=tenant, token_id=token_id, by=by)
    if row is not None:
        return str(row["principal"])
    known = await fetch_one(session, _TOKENS["get"], tenant=tenant, token_id=token_id)
    if known is None:
        raise NotFound(f"No token {token_id}: see `surefoot tokens list`.")
    raise Conflict(f"Token {token_id} was revoked by {known['revoked_by']} before: nothing is left to do.")


def _hash(secret: str) -> str:
    # A plain hash is enough: the secret is 256 random bits, not a password.
    return hashlib.sha256(secret.encode()).hexdigest()
