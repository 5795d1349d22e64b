"""The records of one commit of an import: rows of Kafka on their way to staged files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from pylogtable.engine import AppendPlan, Staged
from pylogtable.kafka.rows import last_places


@dataclass(frozen=True)
class Batch:
    """What one commit is to have. `lasts` has one past the last offset of each partition with
    records, `letters` the rows that are dead letters. `schema_ids` has how many records each schema
    has."""

    plan: AppendPlan
    staged: Sequence[Staged]
    lasts: Mapping[int, int]
    letters: Sequence[pa.RecordBatch] = ()
    schema_ids: Mapping[int, int] = field(default_factory=dict)


class Batching(Protocol):
    """Takes rows of Kafka until there are enough for a commit. A context manager: leaving it with
    an exception removes what was staged."""

    def __enter__(self) -> Batching: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...
    def add(self, rows: pa.RecordBatch) -> None: ...
    def finish(self) -> Batch: ...


class BytesBatch:
    """Keys and values stay the bytes that they are."""

    def __init__(self, plan: AppendPlan, encoders: Executor) -> None:
        self._plan = plan
        self._stager = plan.begin(encoders=encoders)
        self._lasts: dict[int, int] = {}

    def __enter__(self) -> BytesBatch:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stager.__exit__(kind, error, trace)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take all of these rows."""
        self._stager.add(rows)
        self._lasts.update(last_places(rows))

    def finish(self) -> Batch:
        """What the commit is to have."""
        return Batch(self._plan, [self._stager.finish()], self._lasts)
