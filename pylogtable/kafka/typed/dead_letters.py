"""The dead letters of a typed topic: records of Kafka that could not become rows of it.

They are in a topic of their own, under the partition and offset that they have in Kafka. A dead
letter leaves a hole in the copy. Each says where the copy ended when it came (`copy_end`), so an
import that begins again behind the end of its copy knows which records it need not ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pylogtable.errors import (
    CommitConflictError,
    InvalidRequestError,
    TopicExistsError,
    TopicNotFoundError,
)
from pylogtable.kafka.rows import HEADERS, TIMESTAMP
from pylogtable.kafka.topics_plan import DEAD_LETTERS
from pylogtable.kafka.typed.columns_plan import KAFKA_OFFSET, KAFKA_PARTITION
from pylogtable.kafka.typed.typed_rows import Dead
from pylogtable.store import Store
from pylogtable.topic import Topic

COPY_END = "copy_end"
KEY = [KAFKA_PARTITION, KAFKA_OFFSET]
SCHEMA = pa.schema(
    [
        pa.field(KAFKA_PARTITION, pa.int32(), nullable=False),
        pa.field(KAFKA_OFFSET, pa.int64(), nullable=False),
        pa.field("kafka_timestamp", TIMESTAMP),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("part", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("reason", pa.string()),
        pa.field(COPY_END, pa.int64()),
    ]
)

Int64s = npt.NDArray[np.int64]


def dead_letters_of(name: str) -> str:
    """The name of the topic with the dead letters of this one."""
    return f"{name}{DEAD_LETTERS}"


class DeadLetters:
    """The dead letters of one import. `copy` is the topic whose holes they are."""

    def __init__(self, store: Store, copy: Topic, app_id: str, note: Mapping[str, Any]) -> None:
        """`note` tells a later redrive how the values were decoded."""
        self.name = dead_letters_of(copy.name)
        self._store = store
        self._app_id = app_id
        self._note = {"topic_id": copy.topic_id, **note}
        self._topic: Topic | None = None
        self._last: int | None = None
        #: By partition, the offsets of dead letters that are there already, and will come again.
        self._known: dict[int, Int64s] = {}
        with suppress(TopicNotFoundError):
            self._topic = store.topic(self.name)

    def positions(self, ends: Mapping[int, int]) -> dict[int, int]:
        """Where the copy with these ends goes on: behind the dead letters that follow its last
        records. Dead letters behind that came with records that did not: the import was killed in
        between. These records come again, and their dead letters are known."""
        positions = dict(ends)
        if self._topic is None:
            return positions
        view = self._topic.at()
        mark = view.snapshot.txns.get(self._app_id)
        if mark is None:
            if view.count():
                raise self._of_another("no import of this topic of Kafka has brought them")
            return positions
        self._last = mark.txn_version
        made = self._topic.txn(self._app_id)
        if made is None or (made.note or {}).get("topic_id") != self._note["topic_id"]:
            raise self._of_another("they are of an earlier topic of that name")
        for batch in view.read(columns=[KAFKA_PARTITION, KAFKA_OFFSET, COPY_END]):
            self._note_known(batch, ends, positions)
        self._known = {
            number: np.unique(offsets[offsets >= positions[number]])
            for number, offsets in self._known.items()
        }
        return positions

    def _of_another(self, why: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"topic {self.name!r} has dead letters, and {why}. Delete it, or import under another "
            "--name (name=)"
        )

    def _note_known(
        self, batch: pa.RecordBatch, ends: Mapping[int, int], positions: dict[int, int]
    ) -> None:
        numbers = batch[KAFKA_PARTITION].to_numpy()
        offsets = batch[KAFKA_OFFSET].to_numpy()
        copy_ends = batch[COPY_END].fill_null(2**63 - 1).to_numpy()  # null if it was redriven
        for number in np.unique(numbers).tolist():
            mine = (numbers == number) & (offsets >= ends.get(number, 0))
            if not mine.any():
                continue
            before = self._known.get(number, np.empty(0, np.int64))
            self._known[number] = np.concatenate([before, offsets[mine]])
            last = offsets[mine & (copy_ends <= ends.get(number, 0))]
            if last.size:
                positions[number] = max(positions.get(number, 0), int(last.max()) + 1)

    def are_known(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which of these rows of Kafka are dead letters already."""
        known = np.zeros(rows.num_rows, np.bool_)
        if not any(offsets.size for offsets in self._known.values()):
            return known
        numbers, places = rows["partition"].to_numpy(), rows["offset"].to_numpy()
        for number, offsets in self._known.items():
            mine = numbers == number
            known[mine] = np.isin(places[mine], offsets)
        return known

    def append(self, letters: Sequence[pa.RecordBatch]) -> int:
        """Append dead letters in one commit, and return how many. This comes before the commit of
        the records around them, so a crash in between loses none."""
        rows = pa.Table.from_batches(letters, SCHEMA)
        count = int(rows.num_rows)
        if not count:
            return 0
        topic = self._opened()
        number = 0 if self._last is None else self._last + 1
        result = topic.append(
            rows, txn=(self._app_id, number), expected_last=self._last, note=self._note
        )
        if result.repeated:  # an import never repeats one: it looks first
            raise CommitConflictError(
                f"another import has written to topic {self.name!r}. Run one at a time, and "
                "repeat it"
            )
        self._last = number
        return count

    def _opened(self) -> Topic:
        if self._topic is None:
            with suppress(TopicExistsError):  # another import was faster
                # They stay until somebody has dealt with them.
                config = {"retention.ms": -1}
                self._store.create_topic(self.name, 1, SCHEMA, KEY, config)
            self._topic = self._store.topic(self.name)
        return self._topic


def letters_of(rows: pa.RecordBatch, dead: Sequence[Dead], copy_ends: Int64s) -> pa.RecordBatch:
    """The dead letters of these rows of Kafka. `copy_ends` has, for each row, where the copy of its
    partition ends before it."""
    places = pa.array([one.row for one in dead], pa.int64())
    taken = rows.take(places)
    return pa.RecordBatch.from_arrays(
        [
            taken["partition"],
            taken["offset"],
            taken["timestamp"],
            taken["key"],
            taken["value"],
            taken["headers"].cast(HEADERS),
            pa.array([one.part for one in dead], pa.string()),
            pa.array([one.schema_id for one in dead], pa.int32()),
            pa.array([one.reason for one in dead], pa.string()),
            pa.array(copy_ends[places.to_numpy()], pa.int64()),
        ],
        schema=SCHEMA,
    )


def first_reason(letters: Sequence[pa.RecordBatch]) -> str:
    """Why the first one of these is dead."""
    return str(next(batch for batch in letters if batch.num_rows)["reason"][0])
