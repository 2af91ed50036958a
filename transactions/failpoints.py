"""Named points at which a process can be made to die, for crash tests and the demo.

Unarmed, a passage costs one dictionary lookup. Armed through the environment:

    SUREFOOT_FAILPOINT=effect.after_send:2     SIGKILL to this process at the second passage of that point
    SUREFOOT_FAILPOINT=*:7                     ... at the seventh passage of any point
    SUREFOOT_FAILPOINT=effect.after_send:1:stop    SIGSTOP instead, once: somebody else ends the process
    SUREFOOT_FAILPOINT=effect.after_send:1:freeze  the thread that passes never goes on, and the process lives: for
                                                   rehearsals, where worker and test are one process
    SUREFOOT_FAILPOINT=trace                   nothing happens, and every passage is appended to the log
    SUREFOOT_FAILPOINT_LOG=FILE                append "pid point" before dying or stopping

The count lives in the environment itself, so no module keeps state and a fresh process starts fresh.
"""

import os
import signal
import threading
from pathlib import Path

ARMED = "SUREFOOT_FAILPOINT"
LOG = "SUREFOOT_FAILPOINT_LOG"
TRACE = "trace"


def failpoint(name: str) -> None:
    """Pass the point `name` (`noun.moment`); dies (or stops, or freezes) here if it is armed for this passage."""
    armed = os.environ.get(ARMED)
    if armed is None:
        return
    if armed == TRACE:
        _append(name)
        return
    pattern, _, rest = armed.partition(":")
    passages, _, action = rest.partition(":")
    if pattern not in ("*", name):
        return
    left = int(passages or "1") - 1
    if left > 0:
        os.environ[ARMED] = f"{pattern}:{left}:{action}"
        return
    os.environ.pop(ARMED, None)  # another thread may pass here at the same moment
    _append(name)
    if action == "freeze":
        freeze()
    os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)


def freeze() -> None:
    """Never return, and run nothing on the way: no `finally`, no `except`, no other task of this thread's loop."""
    while True:
        threading.Event().wait()


def _append(name: str) -> None:
    """One write, so that lines of several processes stay whole; the page cache outlives the process."""
    if log := os.environ.get(LOG):
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()} {name}\n")
