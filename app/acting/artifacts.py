"""Artifacts: what runs have made."""

from app.acting.base import Base
from transactions import Role, artifacts


class ArtifactActs(Base):
    async def artifact(self, name: str, version: int) -> bytes:
        """The bytes of an artifact version, verified against its hash. Raises NotFound."""
        async with self._transaction("read", Role.VIEWER) as session:
            _, content = await artifacts.read(session, self.tenant, name, version)
            return content
