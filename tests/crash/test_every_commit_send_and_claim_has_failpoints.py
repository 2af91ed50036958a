"""Every commit, send and claim in the source has a failpoint before and after it, and a traced run passes it.

The sites are read from the source. What the traced runs do not pass is listed here, each with its reason.
"""

import ast
from collections.abc import Iterator

import pytest

from app.crashtest.outcome import Outcome
from app.crashtest.report import Report
from tests.static.sources import modules, shown, tree

OPENERS = frozenset(
    {
        "transaction",
        "all_tenants",
        "as_login",
        "removing",
        "_transaction",
        "_administration",
        "_as_worker",
        "_commit",
        "commit",
    }
)
# The demo's services are the outside, with files of their own; the kit is not the product.
OUTSIDE = ("app/demo/", "app/crashtest/")
# Functions that hand on the name they are given.
HAND_ON = {
    "transactions/database.py:transaction": "opens under the name it is given",
    "transactions/database.py:all_tenants": "opens under the name it is given",
    "transactions/database.py:removing": "opens under the name it is given",
    "transactions/database.py:as_login": "opens under the name it is given",
    "steps/calling.py:_commit": "commits under the name it is given",
    "steps/drive.py:once": "commits under the name it is given",
    "app/acting/base.py:_transaction": "opens under the name it is given",
    "app/acting/admin.py:_administration": "opens under the name it is given",
    "app/acting/base.py:_as_worker": "opens under the name it is given",
}
# Commits that no worker of the traced runs makes; each has both failpoints by construction of `Database.transaction`.
# The exhaustive pass kills a person's process at those that a person makes, and a worker that is asked to leave.
NOT_IN_A_RUN = {
    "run.start": "made by whoever starts a run, not by a worker",
    "run.release": "made by a person",
    "run.cancel": "made by a person",
    "run.hold": "made by a person",
    "run.move": "made by a person",
    "version.use": "made by a person",
    "run.undo": "made by a person",
    "approval.decide": "made by a person",
    "action.settle": "made by a person",
    "action.ask_again": "made by a person",
    "outbox.redrive": "made by a person",
    "outbox.discard": "made by a person",
    "outbox.unsubscribe": "made by a person",
    "limit.set": "made by an admin",
    "limit.unset": "made by an admin",
    "schedule.set": "made by a person",
    "schedule.remove": "made by a person",
    "schedule.pause": "made by a person",
    "schedule.resume": "made by a person",
    "tenant.create": "made by an admin",
    "principal.set": "made by an admin",
    "principal.disable": "made by an admin",
    "principal.enable": "made by an admin",
    "token.create": "made by an admin",
    "token.revoke": "made by an admin",
    "epoch.begin": "made by an admin, or a worker's start after a restore",
    "effect.presume": "only after a restore: tests/races/test_epochs.py",
    "token.use": "made by whoever shows a token",
    "consumer.take": "only where an application has a local consumer: tests/races/test_local_consumer.py",
    "relay.renew": "only when a consumer takes long: tests/races/test_relay.py",
    "read": "reads for the API and the command line",
    "worker.release": "made by a worker that is asked to stop",
    "worker.drain": "made by a worker that is asked to stop",
    "watchdog.move": "only when a version has no worker any more: tests/races/test_versions.py",
    "watchdog.hold": "only when no version that lives can read a run, as before",
    "watchdog.release": "only when one can again, as before",
    "segment.diverge": "only when the code has changed, or does not always take the same steps: "
    "tests/guarantees/test_a_replay_that_diverges_is_told_once_and_not_retried_for_ever.py",
    "watchdog.restart": "only when the engine has lost a segment: tests/races/test_watchdog.py",
    "share.wake": "only when runs share an action: tests/races/test_keys.py",
    "effect.objected": "only when an approval does not hold any more and the run has gone on to wait",
    "effect.put_off": "only when an effect cannot be driven: tests/races/test_unknown_outcomes.py",
    "effect.stopped": "only when the other side does not let us: tests/races/test_classes_of_failure.py",
    "artifact.stage": "only where artifacts are in a store outside, as all of the sweeper's: "
    "tests/guarantees/test_an_artifact_is_whole_or_not_there.py",
    "artifact.ask": "only when a writer was overtaken by the sweeper",
    "artifact.begin_sweep": "the sweeper's",
    "artifact.sweep": "the sweeper's",
    "artifact.look": "the sweeper's",
    "retention.begin": "of retention, whose first pass is a minute after the start, as the next three: "
    "tests/guarantees/test_what_is_over_is_removed_and_nothing_that_is_still_needed.py",
    "retention.look": "of retention",
    "retention.batch": "of retention",
    "retention.asked": "made by an admin, who has it done",
    "retention.set": "made by an admin",
    "result.look": "only for a large result: tests/guarantees/test_a_large_result_is_kept_once_and_read_in_parts.py",
    "result.keep": "only for a large result of a read, as before",
    "effect.close": "only when a settled effect is delivered once more: a race",
}
# Passed by workers that take over, when a case of the sample happens to need it: the long matrix passes them.
IN_RECOVERY = {
    "effect.absent": "when what was sent is proved absent",
    "effect.park": "when what can neither be looked up nor sent twice was not answered",
    "effect.back_off": "when a run takes no new work, or nobody can tell",
    "watchdog.cut": "when a dead worker still has sessions at the server, as one that is frozen: "
    "tests/guarantees/test_nothing_is_stranded_whoever_dies_over_the_recovery.py",
}
# Where else something leaves the process, or is claimed: the call in the source, and its failpoints.
SENDS = {
    ("steps/sending.py", "call_body"): ("effect.before_send", "effect.after_send"),
    ("steps/verifying.py", "verify"): ("effect.before_verify", "effect.after_verify"),
    ("outbox/mail.py", "_send"): ("mail.before_send", "mail.after_send"),
    ("outbox/webhook.py", "_post"): ("webhook.before_send", "webhook.after_send"),
    ("outbox/relay.py", "_take"): ("relay.claim.after_commit", "relay.after_take"),
    ("transactions/artifact_store.py", "put"): ("artifact.before_put", "artifact.after_put"),
    ("transactions/artifact_store.py", "delete"): ("artifact.before_delete", "artifact.after_delete"),
    ("steps/journal.py", "run_step_async"): ("step.before_record", "step.after_record"),
    ("steps/journal.py", "until_committed"): ("step.before_body", "step.after_body"),
    ("app/watchdog.py", "recover"): ("watchdog.before_recover", "watchdog.after_recover"),
    ("transactions/lease.py", "execute"): ("lease.before_renew", "lease.after_renew"),
}
# Connections that are opened past `Database`: what is done on each.
CONNECTIONS = {
    "transactions/lease.py": "the heartbeat, with failpoints of its own",
    "transactions/wakeups.py": "LISTEN and NOTIFY: a lost one costs a poll, nothing else",
    "transactions/access.py": "asks what this login may be, and for a pooler in between; writes nothing",
    "transactions/database.py": "asks for the server's version at the start",
    "transactions/clones.py": "databases for tests",
    "transactions/migrate.py": "migrations, under Alembic's own transaction, before any worker",
    "transactions/local/server.py": "makes the embedded database",
    "transactions/local/cluster.py": "asks whether the embedded server is up",
    "app/cli/db.py": "a client for people",
    "app/cli/doctor.py": "asks whether the server is up",
}


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """File, innermost function and call, for every call in the product."""

    def walk(node: ast.AST, file: str, function: str) -> Iterator[tuple[str, str, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from walk(child, file, child.name)
                continue
            if isinstance(child, ast.Call):
                yield file, function, child
            yield from walk(child, file, function)

    for path in modules():
        yield from walk(tree(path), shown(path), "")


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def names(argument: ast.expr) -> list[str] | None:
    """The names that a commit can have; None when the name is handed on."""
    if isinstance(argument, ast.Constant):
        return [str(argument.value)]
    return None


def commits() -> Iterator[tuple[str, str]]:
    """Where and under which name something is committed."""
    for file, function, call in calls():
        if file.startswith(OUTSIDE) or called(call) not in OPENERS or not call.args:
            continue
        found = names(call.args[0])
        if found is None:
            assert f"{file}:{function}" in HAND_ON, f"{file}:{call.lineno}"
            continue
        yield from ((f"{file}:{call.lineno}", name) for name in found)


@pytest.fixture(scope="session")
def passed(report: Report, errands_run: Outcome) -> set[str]:
    """Every point that an undisturbed run or a worker of the sample passed, or was struck at."""
    points = {point for outcome in report.outcomes for point in outcome.trace}
    struck = {strike.point for outcome in report.outcomes for strike in outcome.strikes}
    return {*points, *struck, *report.catalogue, *errands_run.trace}


def test_every_commit_is_passed_before_and_after_in_a_traced_run_or_is_explained(passed: set[str]) -> None:
    sites = list(commits())
    assert len(sites) > 40
    explained = {**NOT_IN_A_RUN, **IN_RECOVERY}
    missing = [
        f"{where}: {name}"
        for where, name in sites
        if name not in explained and not {f"{name}.before_commit", f"{name}.after_commit"} <= passed
    ]
    assert missing == []


def test_what_is_explained_is_still_there_and_is_not_passed_by_an_undisturbed_run(
    report: Report, errands_run: Outcome
) -> None:
    known = {name for _, name in commits()}
    assert {*NOT_IN_A_RUN, *IN_RECOVERY} - known == set()
    undisturbed = {*report.catalogue, *errands_run.trace}
    assert [name for name in {**NOT_IN_A_RUN, **IN_RECOVERY} if f"{name}.before_commit" in undisturbed] == []


def test_every_send_and_claim_past_a_commit_has_failpoints_that_are_in_the_source() -> None:
    written = {
        (file, call.args[0].value)
        for file, _, call in calls()
        if called(call) == "failpoint" and isinstance(call.args[0], ast.Constant)
    }
    made = {(file, called(call)) for file, _, call in calls()}
    commit_points = {f"{name}.{moment}" for _, name in commits() for moment in ("before_commit", "after_commit")}
    for (file, name), points in SENDS.items():
        assert (file, name) in made
        assert [point for point in points if (file, point) not in written and point not in commit_points] == []


def test_no_other_connection_is_opened_than_those_explained() -> None:
    opened = {
        file
        for file, _, call in calls()
        if called(call) in ("connect", "sync_engine")
        and ast.unparse(call.func).startswith(("psycopg.", "sync_engine", "database.sync_engine"))
    }
    assert opened - CONNECTIONS.keys() == set()
