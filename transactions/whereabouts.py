"""Where a database is: which cluster, which timeline of its log, which numbers there. A restored one is elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from transactions.errors import Fenced


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """As far as the server lets one ask; None: it does not say.

    A copy of the files of a cluster, or a snapshot of its disk, is at the same place as the original. A dump is not,
    even if it was put back into the same database: `database_id` has the number of one of our tables, too.
    """

    system_id: str | None = None
    timeline: int | None = None
    database_id: str | None = None

    def is_at(self, other: "Whereabouts") -> bool:
        """Whether nothing that both say is different."""
        return not self.difference(other)

    def difference(self, now: "Whereabouts") -> str:
        """What is different now, in words that follow "the database"; empty when nothing is."""
        if _differ(self.system_id, now.system_id):
            return f"is on another cluster ({now.system_id}) than before ({self.system_id}): it was restored or copied"
        if _differ(self.timeline, now.timeline):
            return (
                f"is on timeline {now.timeline} of its log, and was on {self.timeline}: "
                "it was restored, or a standby has taken over"
            )
        if _differ(self.database_id, now.database_id):
            return f"is number {now.database_id} on its cluster, and was {self.database_id}: it was restored or copied"
        return ""


def _differ(before: object, now: object) -> bool:
    return before is not None and now is not None and before != now


def looking(here: Whereabouts, on_moved: Callable[[str], None]) -> Callable[[psycopg.Connection], None]:
    """What is asked of each new connection: whether it finds the database where it was. It raises Fenced where not,
    after `on_moved`, which must not return, was told what is different. A standby counts as a database that is away: it
    may be promoted under an open connection, which nobody would see.
    """

    def look(connection: psycopg.Connection) -> None:
        cursor = connection.cursor()
        cursor.execute("select recovering, system_id, timeline, database_id from surefoot.whereabouts()")
        found = cursor.fetchone()
        assert found is not None
        recovering, *place = found
        cursor.close()
        connection.rollback()
        if recovering:
            raise psycopg.errors.SqlclientUnableToEstablishSqlconnection("this is a standby, which takes no writes")
        if difference := here.difference(Whereabouts(*place)):
            on_moved(f"The database {difference}")
            raise Fenced(f"the database {difference}")

    return look
