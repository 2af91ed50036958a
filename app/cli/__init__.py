"""The command line: one module a group of commands."""

import typer

from app.cli import (
    actions,
    approvals,
    artifacts,
    crashtest,
    db,
    demo,
    doctor,
    outbox,
    people,
    queue,
    retention,
    runs,
    schedules,
    serve,
    versions,
)

main = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Durable AI agents on Postgres."
)
main.add_typer(runs.group, name="runs")
main.add_typer(versions.group, name="versions")
main.add_typer(approvals.group, name="approvals")
main.add_typer(actions.group, name="actions")
main.add_typer(outbox.group, name="outbox")
main.add_typer(people.tokens, name="tokens")
main.add_typer(people.principals, name="principals")
main.add_typer(people.tenants, name="tenants")
main.add_typer(artifacts.group, name="artifacts")
main.add_typer(queue.limits, name="limits")
main.add_typer(schedules.group, name="schedules")
main.add_typer(retention.group, name="retention")
main.add_typer(db.group, name="db")
main.command("run")(runs.run)
main.command("queue")(queue.queue)
main.command("serve")(serve.serve)
main.command("worker")(serve.worker)
main.command("migrate")(db.migrate)
main.command("doctor")(doctor.doctor)
main.command("demo")(demo.demo)
main.command("crashtest")(crashtest.crashtest)

__all__ = ["main"]
