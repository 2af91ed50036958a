"""A job runner: it counts the words of a text, and takes its time.

    POST /jobs {reference, text}          201 and the job: each accepted request is one more job
    GET  /jobs?reference=...              those with the reference, oldest first
    GET  /jobs/{id}                       the job; the second time it is asked for by its number, it has finished
    GET  /jobs/{id}/result                {words}; 409 while it has not finished
    POST /jobs/{id}/cancel                the job, cancelled; 409 when it has finished

A job is `{id, reference, state}`, its state `running`, `finished` or `cancelled`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from app.demo.worlds.service import transaction
from app.demo.worlds.web import make_service, serve

TABLES = (
    """create table if not exists jobs (
        id integer primary key autoincrement, reference text not null, text text not null, asked integer not null,
        cancelled integer not null, submitted_at real not null)""",
)
ASKED_UNTIL_FINISHED = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One job that was submitted. `asked`: how often it was asked for by its number while it ran."""

    id: int
    reference: str
    text: str
    asked: int
    cancelled: int
    submitted_at: float

    @property
    def state(self) -> str:
        return "cancelled" if self.cancelled else "finished" if self.asked >= ASKED_UNTIL_FINISHED else "running"


class NewJob(BaseModel):
    reference: Annotated[str, Field(min_length=1, max_length=500)]
    text: str


def jobs(file: Path, reference: str | None = None) -> list[Job]:
    """Every job of the runner whose file this is, oldest first; with a reference, only those that bear it."""
    with transaction(file) as connection:
        rows = connection.execute(
            "select * from jobs where ?1 is null or reference = ?1 order by id", (reference,)
        ).fetchall()
    return [Job(**dict(row)) for row in rows]


def make_app(file: Path) -> FastAPI:
    """The runner on a file, which is made when it is not there."""
    app = make_service(file, "Job runner", TABLES)

    def submit(new: NewJob) -> dict[str, Any]:
        return _shown(
            _changed(
                file,
                "insert into jobs (reference, text, asked, cancelled, submitted_at) values (?, ?, 0, 0, ?) returning *",
                new.reference,
                new.text,
                time.time(),
            )
        )

    def find(reference: str) -> list[dict[str, Any]]:
        return [_shown(job) for job in jobs(file, reference)]

    def status(job_id: int) -> dict[str, Any]:
        return _shown(_changed(file, "update jobs set asked = asked + 1 where id = ? returning *", job_id))

    def result(job_id: int) -> dict[str, int]:
        job = _changed(file, "select * from jobs where id = ?", job_id)
        if job.state != "finished":
            raise HTTPException(409, f"job {job_id} is {job.state}: ask for its result when it has finished")
        return {"words": len(job.text.split())}

    def cancel(job_id: int) -> dict[str, Any]:
        sql = "update jobs set cancelled = cancelled or asked < ? where id = ? returning *"
        job = _changed(file, sql, ASKED_UNTIL_FINISHED, job_id)
        if job.state != "cancelled":
            raise HTTPException(409, f"job {job_id} has finished: there is nothing to cancel")
        return _shown(job)

    app.add_api_route("/jobs", submit, methods=["POST"], status_code=201)
    app.add_api_route("/jobs", find, methods=["GET"])
    app.add_api_route("/jobs/{job_id}", status, methods=["GET"])
    app.add_api_route("/jobs/{job_id}/result", result, methods=["GET"])
    app.add_api_route("/jobs/{job_id}/cancel", cancel, methods=["POST"])
    return app


def _changed(file: Path, sql: str, *parameters: object) -> Job:
    """The job that the statement returns. Raises HTTPException (404) when there is none."""
    with transaction(file, create=True) as connection:
        row = connection.execute(sql, parameters).fetchone()
    if row is None:
        raise HTTPException(404, "there is no such job")
    return Job(**dict(row))


def _shown(job: Job) -> dict[str, Any]:
    return {"id": job.id, "reference": job.reference, "state": job.state}


if __name__ == "__main__":
    serve("jobs", make_app)
