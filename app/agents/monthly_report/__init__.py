"""A real report on real data: analyse a month, publish after approval, tell the team. See the README of `app`."""

from app.agents.monthly_report.agent import monthly_report

__all__ = ["monthly_report"]
