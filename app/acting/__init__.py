"""What a principal may do, one module a noun; `Acting` is all of it, for one principal in one tenant."""

from app.acting.admin import AdminActs
from app.acting.approvals import ApprovalActs
from app.acting.artifacts import ArtifactActs
from app.acting.desk import DeskActs
from app.acting.outbox import OutboxActs
from app.acting.queue import QueueActs
from app.acting.retention import RetentionActs
from app.acting.runs import RunActs
from app.acting.schedules import ScheduleActs
from app.acting.versions import VersionActs


class Acting(
    RunActs,
    ApprovalActs,
    DeskActs,
    OutboxActs,
    ArtifactActs,
    VersionActs,
    QueueActs,
    ScheduleActs,
    RetentionActs,
    AdminActs,
):
    """Every method asks for a role, and sees and changes what is of the principal's tenant alone.

    Raises Forbidden without the role; NotFound for what is another tenant's, in the words for what there is not.
    """


__all__ = ["Acting"]
