"""How a numbered object is put, and what is said if nobody knows what became of it."""

from __future__ import annotations

import pytest

from pylogtable.errors import CommitUnknownError
from pylogtable.log.commit_loop import put_numbered
from pylogtable.storage.base import Created
from tests.library.test_runtime import Time


def test_number_that_is_taken_by_nothing_is_named_as_the_reason() -> None:
    """A server that was killed may say that an object exists, and have none."""
    unknown = CommitUnknownError("mine", 7)
    with pytest.raises(CommitUnknownError, match="says that there is an object of that number"):
        put_numbered(lambda: Created.EXISTS, lambda: None, unknown, Time().runtime(60.0))
