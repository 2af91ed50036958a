"""The agent itself: its model, its tools and what makes it durable."""

from importlib.resources import files

from pydantic_ai import Agent

from app.agents.ticket_triage.request import TriageRequest, prompt
from app.agents.ticket_triage.script import script
from app.agents.ticket_triage.services import Deps, make_deps
from app.agents.ticket_triage.tools import tools
from steps import durable, model_from_env

ticket_triage = durable(
    Agent(model_from_env(script), name="ticket_triage", deps_type=Deps, toolsets=[tools]),
    version="1",
    deps=make_deps,
    input=TriageRequest,
    prompt=prompt,
    tables=files("app").joinpath("agents", "ticket_triage", "tables.sql").read_text(),
)
