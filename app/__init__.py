"""The head: web, workflows, agents, command line and the composition root. See README.md beside this file."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.surefoot import Surefoot

__all__ = ["Surefoot"]


def __getattr__(name: str) -> Any:
    """`Surefoot` is imported when it is asked for: pytest loads the plugin of this package into every session."""
    if name != "Surefoot":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from app.surefoot import Surefoot

    return Surefoot
