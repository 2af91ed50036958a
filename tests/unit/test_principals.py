"""Which role may what is one table, and an unknown name may nothing of the product's."""

import pytest

from transactions import Forbidden, Principal, Role, Tenant
from transactions.principals import anyone, owner

MAY: dict[str, set[Role]] = {
    "viewer": {Role.VIEWER},
    "operator": {Role.VIEWER, Role.OPERATOR},
    "approver": {Role.VIEWER, Role.APPROVER},
    "admin": {Role.VIEWER, Role.OPERATOR, Role.ADMIN},
    "manager": set(),
    "Admin": set(),
}


def who(*roles: str) -> Principal:
    return Principal(Tenant("t"), "eve", frozenset(roles), authenticated=True)


@pytest.mark.parametrize("name", MAY)
def test_a_role_may_what_its_line_says(name: str) -> None:
    assert {role for role in Role if who(name).may(role)} == MAY[name]


def test_roles_add_up_and_none_is_nothing() -> None:
    assert {role for role in Role if who("operator", "approver", "manager").may(role)} == set(Role) - {Role.ADMIN}
    assert not any(who().may(role) for role in Role)


def test_whoever_there_is_may_everything_and_the_owner_approves_nothing() -> None:
    assert all(anyone().may(role) for role in Role)
    assert not anyone().authenticated
    assert {role for role in Role if owner().may(role)} == MAY["admin"]


def test_a_refusal_says_what_is_needed_and_what_is_there() -> None:
    with pytest.raises(Forbidden, match=r"^This needs the role admin, and eve has: lead, viewer\. Ask an admin for it"):
        who("viewer", "lead").need(Role.ADMIN)
    with pytest.raises(Forbidden, match="and eve has: none"):
        who().need(Role.VIEWER)
    who("viewer").need(Role.VIEWER)
