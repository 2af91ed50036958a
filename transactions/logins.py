"""Logins of the database that may serve the API, or be a worker, and nothing else. They are made by whoever runs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from sqlalchemy import Connection, text

from transactions.access import API, ROLES, WORKER, Access
from transactions.errors import InvalidInput

Kind = Literal["api", "worker"]
_ACCESS: Mapping[Kind, Access] = MappingProxyType({"api": API, "worker": WORKER})
_LOGIN = text(
    "select rolcanlogin, rolinherit, "
    "rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication as powerful, "
    "pg_has_role(rolname, (select nspowner from pg_namespace where nspname = 'surefoot'), 'member') as owns, "
    "array(select r.rolname from pg_roles r where r.rolname = any(:roles) and pg_has_role(l.rolname, r.oid, 'member')) "
    "as has "
    "from pg_roles l where rolname = :name"
)


@dataclass(frozen=True, slots=True)
class Login:
    """What a login of this name is for."""

    name: str
    kind: Kind


def let_in(connection: Connection, login: Login) -> None:
    """Give a login what its kind needs. Safe to repeat. Raises InvalidInput for one that could do more than that."""
    access = _ACCESS[login.kind]
    _check(connection, login, access)
    quote = connection.dialect.identifier_preparer.quote
    name = quote(login.name)
    database = connection.execute(text("select current_database()")).scalar_one()
    connection.execute(text(f"grant connect on database {quote(database)} to {name}"))
    connection.execute(text(f"grant {', '.join(access.roles)} to {name}"))


def _check(connection: Connection, login: Login, access: Access) -> None:
    row = connection.execute(_LOGIN, {"name": login.name, "roles": [*ROLES]}).mappings().one_or_none()
    if row is None or not row["rolcanlogin"]:
        raise InvalidInput(
            f"There is no login {login.name!r}: make it first, such as with `create role {login.name} login password "
            "'...'`, then run `surefoot migrate` again."
        )
    if row["powerful"] or row["owns"]:
        raise InvalidInput(
            f"The login {login.name!r} is a superuser, owns schema surefoot, or may make roles or databases, so no "
            "grant binds it: make a plain login for this."
        )
    if more := sorted(set(row["has"]) - {*access.roles}):
        raise InvalidInput(
            f"The login {login.name!r} has {', '.join(more)} already, and a login serves the API or is a worker: "
            f"take it away (`revoke {', '.join(more)} from {login.name}`), or use another login."
        )
    if not row["rolinherit"]:
        raise InvalidInput(
            f"The login {login.name!r} does not inherit what its roles may: say `alter role {login.name} inherit`, "
            "then run `surefoot migrate` again."
        )
