"""The agent itself: its model, its tools and what makes it durable."""

from importlib.resources import files

from pydantic_ai import Agent

from app.agents.monthly_report.request import ReportRequest, check, prompt
from app.agents.monthly_report.script import script
from app.agents.monthly_report.tools import Deps, make_deps, tools
from steps import durable, model_from_env

monthly_report = durable(
    Agent(model_from_env(script), name="monthly_report", deps_type=Deps, toolsets=[tools]),
    version="1",
    deps=make_deps,
    input=ReportRequest,
    prompt=prompt,
    check=check,
    tables=files("app").joinpath("agents", "monthly_report", "tables.sql").read_text(),
)
