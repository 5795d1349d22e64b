"""Random histories of a topic, with every operation that changes what a table shows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pylogtable import Store, Topic
from pylogtable.engine import plan_append

OPERATIONS = (
    *("append",) * 4,
    *("race",) * 3,
    *("publish",) * 4,
    *("merge", "compact", "compact", "delete_records", "delete_records", "erase"),
    *("add_column", "widen", "grow", "toggle_inline"),
)
MAPPED = (*OPERATIONS, "rename", "drop")


@dataclass
class History:
    """A topic that changes at random; `seed` repeats it. Small appends may be in commits."""

    store: Store
    seed: int
    formats: tuple[str, ...] = ("delta",)
    rng: random.Random = field(init=False)
    topic: Topic = field(init=False)
    columns: dict[str, pa.DataType] = field(init=False)
    written: int = 0
    inline_bytes: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.columns = {"name": pa.string(), "small": pa.int32(), "fixed": pa.bool_()}
        fields = [pa.field(name, kind, name != "fixed") for name, kind in self.columns.items()]
        self.topic = self.store.create_topic(
            "orders",
            partitions=2,
            schema=pa.schema([pa.field("id", pa.int64()), *fields]),
            key="id",
            config={"cleanup.policy": "compact,delete", "retention.ms": -1, "segment.bytes": 9000},
        )
        if self.rng.random() < 0.5:
            self._toggle_inline()

    def do(self, operation: str) -> None:
        step: Callable[[], object] = getattr(self, f"_{operation}")
        step()

    def rows(self) -> pa.Table:
        count = self.rng.randrange(1, 40)
        numbers = range(self.written, self.written + count)
        self.written += count
        made = {"id": pa.array([self.rng.randrange(25) for _ in numbers], pa.int64())}
        for name, kind in self.columns.items():
            nulls = 0.0 if name == "fixed" else 0.2
            values = [None if self.rng.random() < nulls else n % 1000 for n in numbers]
            if kind == pa.bool_():
                made[name] = pa.array([n % 2 == 0 for n in numbers])
            else:
                made[name] = pa.array(values, pa.int16()).cast(kind)
        return pa.table(made)

    def _append(self) -> None:
        self.topic.append(self.rows())

    def _race(self) -> None:
        """Two writers stage at the same end: the second one's segments are shifted."""
        staged = [plan_append(self.topic).stage(self.rows()) for _ in range(2)]
        for one in staged:
            plan_append(self.topic).commit([one])

    def _merge(self) -> None:
        self.topic.merge()

    def _compact(self) -> None:
        self.topic.compact(force=True)

    def _erase(self) -> None:
        key = self.rng.randrange(25)
        if self.rng.random() < 0.5:
            self.topic.erase(keys=[key])
        else:
            self.topic.erase(where=(pc.field("id") == key) & (pc.field("partition") == 0))

    def _delete_records(self) -> None:
        number = self.rng.randrange(len(self.topic.end_offsets()))
        low, high = self.topic.start_offsets()[number], self.topic.end_offsets()[number]
        self.topic.delete_records({number: self.rng.randint(low, high)})

    def _add_column(self) -> None:
        name = f"added{len(self.columns)}"
        kind = self.rng.choice([pa.float64(), pa.decimal128(10, 2), pa.int16(), pa.string()])
        if name not in self.columns:
            self.topic.alter(add_columns={name: kind})
            self.columns[name] = kind

    def _widen(self) -> None:
        if self.columns.get("small") == pa.int32():
            self.topic.alter(widen_columns={"small": pa.int64()})
            self.columns["small"] = pa.int64()

    def _rename(self) -> None:
        old = self.rng.choice([name for name in self.columns if name != "fixed"] or ["fixed"])
        new = f"{old}_"
        self.topic.alter(rename_columns={old: new})
        self.columns = {new if name == old else name: t for name, t in self.columns.items()}

    def _drop(self) -> None:
        names = [name for name in self.columns if name != "fixed"]
        if len(names) > 1:
            self.topic.alter(drop_columns=[names[-1]])
            del self.columns[names[-1]]

    def _grow(self) -> None:
        self.topic.alter(partitions=len(self.topic.end_offsets()) + 1)

    def _toggle_inline(self) -> None:
        self.inline_bytes = 16384 - self.inline_bytes
        self.topic.alter(config={"inline.max.bytes": self.inline_bytes})

    def _publish(self) -> None:
        self.topic.publish(self.formats)
