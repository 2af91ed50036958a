"""Customers' reports, triaged: tickets, escalations and pages in systems of three kinds. See the README of `app`."""

from app.agents.ticket_triage.agent import ticket_triage

__all__ = ["ticket_triage"]
