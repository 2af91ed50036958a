"""The systems that the triage works with, each safe in its own way, and where they are."""

import os
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_ai import ModelRetry

from app.agents.ticket_triage.request import Report, TriageRequest
from steps import HttpApi, Refused
from transactions import Run

ATTEMPT_S = 4.0
_TIMEOUT_S = 3.0  # within the attempt, so that an attempt that is over has nothing under way


class Made(BaseModel):
    """What each of them answers of something it has made: its own number for it."""

    id: int


@dataclass(frozen=True, slots=True)
class Deps:
    """`desk` honours keys, `tracker` is older and can only be searched by reference, `pager` can do neither."""

    request: TriageRequest
    run: Run
    desk: HttpApi | None
    tracker: HttpApi | None
    pager: HttpApi | None

    def report(self, number: int) -> Report:
        """A report by its number, counted from 1. Raises ModelRetry when there is no such one."""
        reports = self.request.reports
        if not 1 <= number <= len(reports):
            raise ModelRetry(f"There is no report {number}: they are numbered from 1 to {len(reports)}.")
        return reports[number - 1]


def make_deps(run: Run) -> Deps:
    return Deps(
        request=TriageRequest.model_validate(run.input),
        run=run,
        desk=_api("SUREFOOT_TICKETS"),
        tracker=_api("SUREFOOT_TRACKER"),
        pager=_api("SUREFOOT_PAGER"),
    )


def there(api: HttpApi | None, variable: str) -> HttpApi:
    """The API, if this worker was told where it is. Raises Refused."""
    if api is None:
        raise Refused(f"{variable} is not set, so there is nowhere to send this: set it on every worker.")
    return api


def _api(variable: str) -> HttpApi | None:
    """The API at `VARIABLE_URL`, with `VARIABLE_TOKEN` as its bearer token if there is one."""
    url, token = os.environ.get(f"{variable}_URL"), os.environ.get(f"{variable}_TOKEN")
    if not url:
        return None
    return HttpApi(
        url,
        headers={"User-Agent": f"ticket-triage/1 (pid {os.getpid()})"},
        secrets={"Authorization": f"Bearer {token}"} if token else {},
        timeout_s=_TIMEOUT_S,
    )
