"""Who can be compared, and what each needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from transactions import InvalidInput

ALL = "all"


@dataclass(frozen=True, slots=True)
class Contender:
    """`module`: its program, beside this file. `packages`: what it is made of. `group`: what installs them."""

    name: str
    module: str
    packages: tuple[str, ...]
    group: str | None = None

    def versions(self) -> str:
        """What is compared, exactly. Raises InvalidInput when it is not installed, with what to do."""
        try:
            return ", ".join(f"{package} {version(package)}" for package in self.packages)
        except PackageNotFoundError as error:
            raise InvalidInput(
                f"--against {self.name} needs the package {error.name}, which is not installed: "
                f"run `uv sync --group {self.group}`, or leave {self.name} out."
            ) from error


SUREFOOT = "surefoot"
CONTENDERS = (
    Contender("plain", "plain", ("pydantic-ai-slim",)),
    Contender("pydantic-ai-dbos", "pydantic_ai_dbos", ("pydantic-ai-slim", "dbos")),
    Contender("langgraph", "langgraph", ("langgraph", "langgraph-checkpoint-postgres"), group="bench"),
    Contender(SUREFOOT, "surefoot", ("surefoot",)),
)


def chosen(words: Sequence[str]) -> tuple[Contender, ...]:
    """The contenders that `--against` names, in one order. Raises InvalidInput for an unknown or a missing one."""
    asked = {name.strip() for word in words for name in word.split(",") if name.strip()}
    known = {contender.name for contender in CONTENDERS}
    if unknown := asked - known - {ALL}:
        names = ", ".join([*(contender.name for contender in CONTENDERS), ALL])
        raise InvalidInput(f"--against {', '.join(sorted(unknown))}: choose from {names}.")
    found = tuple(contender for contender in CONTENDERS if asked & {contender.name, ALL})
    if not found:
        raise InvalidInput("--against names nobody: choose one or more contenders, or all.")
    for contender in found:
        contender.versions()
    return found
