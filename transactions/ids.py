"""Names for identities, so that a type checker keeps them apart. All are text in the database."""

from typing import NewType

Tenant = NewType("Tenant", str)
RunId = NewType("RunId", str)
ActionId = NewType("ActionId", str)
ApprovalId = NewType("ApprovalId", str)
EntryId = NewType("EntryId", str)
WorkerId = NewType("WorkerId", str)

DEFAULT_TENANT = Tenant("default")
