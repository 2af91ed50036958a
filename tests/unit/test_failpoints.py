"""A crash point is a no-op unless armed for this very passage; then the process is gone at once."""

import os
import threading
from pathlib import Path

import pytest

from tests import forked
from transactions import failpoint
from transactions.failpoints import ARMED, LOG


def passes(*names: str, armed: str, log: str) -> None:
    """Pass the points in order; what was passed stands in the log's neighbour."""
    os.environ[ARMED] = armed
    os.environ[LOG] = log
    for name in names:
        failpoint(name)
        with Path(log).with_suffix(".passed").open("a") as file:
            file.write(f"{name}\n")


def a_b_a(armed: str, log: str) -> None:
    passes("effect.after_send", "step.done", "effect.after_send", armed=armed, log=log)


@pytest.mark.parametrize(
    ("armed", "passed"),
    [
        ("effect.after_send", 0),
        ("effect.after_send:1", 0),
        ("effect.after_send:2", 2),
        ("step.done:1", 1),
        ("*:1", 0),
        ("*:3", 2),
        ("effect.after_send:3", 3),
        ("effect:1", 3),
        ("other", 3),
    ],
)
def test_the_nth_passage_of_an_armed_point_kills_the_process(armed: str, passed: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = forked.exit_code(a_b_a, armed, str(log))
    done = log.with_suffix(".passed")
    assert len(done.read_text().splitlines() if done.exists() else []) == passed
    assert code == (0 if passed == 3 else -9)
    assert log.exists() == (passed < 3)
    if passed < 3:
        pid, name = log.read_text().split()
        assert int(pid) > 0
        assert name == ["effect.after_send", "step.done", "effect.after_send"][passed]


def freezes(log: str) -> None:
    """A thread passes twice; whoever runs beside it goes on."""
    os.environ[ARMED] = "effect.after_send:2:freeze"
    os.environ[LOG] = log

    def work() -> None:
        try:
            for _ in range(3):
                failpoint("effect.after_send")
                with Path(log).with_suffix(".passed").open("a") as file:
                    file.write("passed\n")
        finally:
            Path(log).with_suffix(".finally").touch()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=0.3)
    os._exit(3 if thread.is_alive() and ARMED not in os.environ else 0)


def test_a_frozen_thread_never_goes_on_and_its_process_does(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert forked.exit_code(freezes, str(log)) == 3
    assert log.with_suffix(".passed").read_text() == "passed\n"
    assert log.read_text().endswith(" effect.after_send\n")
    assert not log.with_suffix(".finally").exists()


def test_unarmed_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ARMED, raising=False)
    failpoint("effect.after_send")
    monkeypatch.setenv(ARMED, "")
    failpoint("effect.after_send")
