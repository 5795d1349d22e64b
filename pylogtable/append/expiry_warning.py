"""Warns of records that retention would remove as soon as they are appended."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from pylogtable.format.config import TopicConfig
from pylogtable.format.model import StagedSegment
from pylogtable.jobs.retention_plan import expired_on_arrival


def warn_of_expired(
    url: str, config: TopicConfig, files: Sequence[StagedSegment], now_ms: int
) -> bool:
    """Warn if these files have expired records; true if that was done."""
    old = expired_on_arrival(config, files, now_ms)
    if old is None:
        return False
    records = sum(file.records for file in files)
    many = f"{old.records:,}" if old.records else "some"
    then = (
        "the next retention removes them"
        if old.records
        else "retention removes them when all records of their files are that old"
    )
    warnings.warn(
        f"{many} of {records:,} records appended to {url} are already older than "
        f"retention.ms={config.retention_ms}: {then}. To keep them, call "
        "topic.alter(config={'retention.ms': -1}), or give a longer time; "
        "topic.maintain(dry_run=True) says what would be removed",
        stacklevel=_callers_level(),
    )
    return True


def _callers_level() -> int:
    """How far the first line outside of this library is from the caller of this function."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("pylogtable."):
        frame, level = frame.f_back, level + 1
    return level
