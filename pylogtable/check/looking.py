"""What a check does if the store fails. That is no damage: nobody has seen the object. The report
says what could not be looked at, and the check goes on with the next object."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pylogtable.check.report import Unchecked, VerifyReport
from pylogtable.errors import SegmentGoneError, StorageError
from pylogtable.storage.base import ObjectMissingError

#: A store that fails this often in a row is not asked any more: each time may take minutes.
GIVE_UP_AFTER = 5

#: The store has answered: there is no such object.
MISSING = (ObjectMissingError, SegmentGoneError)


class GaveUpError(Exception):
    """The store fails again and again, so nothing more is looked at."""


class Looking:
    """Notes in a report what could not be looked at."""

    def __init__(self, report: VerifyReport) -> None:
        self._report = report
        self._failed_in_a_row = 0

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Look at this object, or at objects in this folder. A failure of the store ends the block
        and is noted."""
        try:
            yield
        except MISSING:
            raise
        except StorageError as error:
            self._note(Unchecked(path, str(error)))
            self._failed_in_a_row += 1
            if self._failed_in_a_row == GIVE_UP_AFTER:
                detail = f"the store failed {GIVE_UP_AFTER} times in a row, so it was asked no more"
                self._note(Unchecked("all other objects", detail))
                raise GaveUpError(detail) from error
        else:
            self._failed_in_a_row = 0

    def _note(self, unchecked: Unchecked) -> None:
        if unchecked not in self._report.unchecked:
            self._report.unchecked.append(unchecked)
