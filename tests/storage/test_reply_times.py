"""Times in replies of S3 mean what botocore takes them for."""

from __future__ import annotations

import pytest
from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

from pylogtable.storage.s3 import parsed_time


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-18T09:30:00.123Z",
        "2026-11-18T09:30:00Z",
        "2026-11-18T09:30:00+02:00",
        "Wed, 18 Nov 2026 09:30:00 GMT",
        "1795000000",
        1795000000,
    ],
)
def test_time_is_that_of_botocore(text: object) -> None:
    ours, theirs = parsed_time(text), parse_timestamp(text)
    assert ours == theirs
    assert ours.tzinfo is not None
