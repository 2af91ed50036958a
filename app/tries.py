"""Going on past what fails: one row that cannot be done must not keep a loop from the others."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from transactions import is_transient


@dataclass(slots=True)
class Tries:
    """`with tries.one():` for each thing by itself, `tries.end()` once all of them have been tried.

    Of what failed, `end` raises the first; the others are logged as they come, but for what may succeed next time.
    """

    log: logging.Logger
    _first: Exception | None = None

    @contextmanager
    def one(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            if self._first is None:
                self._first = error
            elif not is_transient(error):
                self.log.exception("this failed, too; it is tried again")

    def end(self) -> None:
        if self._first is not None:
            raise self._first
