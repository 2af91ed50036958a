"""The head: web, workflows, agents, command line and the composition root. See README.md beside this file."""

from app.surefoot import Surefoot

__all__ = ["Surefoot"]
