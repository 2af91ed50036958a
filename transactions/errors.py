"""What can go wrong in a transaction. Each message says what to do next."""


class SurefootError(Exception):
    """A problem a person can act on; the message ends with what to do."""


class UnknownAgent(SurefootError):
    """No worker has ever served an agent of this name."""


class NotFound(SurefootError):
    """Nothing of this id is visible to this tenant."""


class Conflict(SurefootError):
    """The request contradicts what is already recorded: a key with another input, a decision after the decision."""


class QueueFull(SurefootError):
    """As many runs wait to begin as may: nothing was started. Ask again after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unauthenticated(SurefootError):
    """Nobody knows who asks: no token, or one that does not count."""


class Forbidden(SurefootError):
    """This person may not do that."""


class InvalidInput(SurefootError):
    """The request itself is wrong; nothing was changed."""


class RequestChanged(SurefootError):
    """The same action id came with another request. Never sent; the run fails."""


class TransactionTooLong(SurefootError):
    """A transaction body outlasted its limit and was rolled back."""


class DatabaseUnavailable(SurefootError):
    """The database cannot be reached, or is not one Surefoot can use."""


class Cancelling(BaseException):
    """The run is being cancelled: nothing new may begin. A BaseException, as `Fenced` is; the segment ends by it."""


class Diverged(BaseException):
    """The replay of a segment came to another step than its record has. A BaseException, as `Fenced` is, so that
    nothing takes it for a result; the segment ends by it. `position` counts the segment's steps from 0.
    """

    def __init__(self, position: int, *, expected: str, found: str) -> None:
        super().__init__(f"step {position} is {expected!r} in the record, and {found!r} now")
        self.position = position
        self.expected = expected
        self.found = found


class StoreUnavailable(SurefootError):
    """A store of artifacts does not answer now, or the sweeper had what was staged there: try it again."""


class StoreFailed(SurefootError):
    """A store of artifacts will not do it, however often it is tried; nothing was kept."""


class ArtifactDamaged(SurefootError):
    """The bytes of an artifact are not those that were saved, or are gone. They are never handed out."""


class Fenced(BaseException):
    """This execution no longer owns its run. A BaseException, so that no engine records it as a result.

    Whoever meets it logs it and ends the worker: another one has taken over, and everything recorded is kept.
    """
