"""When a process is killed, and what is known of each kill."""

import random
from dataclasses import dataclass
from datetime import datetime

# Points of the story: after the commit of the report (the second transaction of the run), before its step is recorded;
# after the publishing service has answered, before the receipt is.
COMMITTED = "tool.transaction.after_commit"
COMMITTED_PASSAGE = 2
WAITING = "while it waits for approval"
PUBLISHED = "effect.after_send"

# An idle worker passes some fifty points a second in its loops, so each of these comes soon. A worker passes twenty to
# thirty before it has taken a run up; from an approval to the end of the report there are some sixty more.
PASSAGES_BEFORE_APPROVAL_MAX = 100
PASSAGES_AFTER_APPROVAL_MAX = 36


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that died by SIGKILL (`wait_status` -9) while a run was unfinished. `at`: the database's clock."""

    pid: int
    failpoint: str
    wait_status: int
    run_id: str
    at: datetime


def passage(draw: random.Random, *, may_finish: bool) -> int:
    """At which passage of any failpoint the next worker dies: a smaller number once the run could finish."""
    return draw.randint(1, PASSAGES_AFTER_APPROVAL_MAX if may_finish else PASSAGES_BEFORE_APPROVAL_MAX)


def before_approval(kills: int) -> int:
    """After how many of so many kills the manager approves; until then the run waits and cannot end."""
    return kills * 2 // 5
