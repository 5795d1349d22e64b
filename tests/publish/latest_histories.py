"""Random histories of a topic whose tables show the newest record of each key, and what such a
table has to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylogtable import Topic
from tests.builders import EPOCH, T0, UTC_US, contents, put_back
from tests.publish.histories import History

KEY = ["country", "id"]
ORDER = [("partition", "ascending"), ("offset", "ascending")]
OPERATIONS = (
    *("append",) * 6,
    *("race",) * 2,
    *("publish",) * 6,
    *("restore",) * 3,
    *("merge", "merge", "compact", "delete_records", "retention", "erase"),
    *("add_column", "widen", "rename", "grow", "toggle_inline", "toggle_view", "toggle_policy"),
)


@dataclass
class LatestHistory(History):
    """Keys have two columns, one of which may be null, and may be in several partitions. Many
    records are tombstones, some have no key. Times go back, and are often equal.

    The topic may be put back to an older state, as from a backup, but not its tables:
    `before_restore` is called before the versions are lost that they show."""

    before_restore: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        super().__post_init__()
        config = {
            "cleanup.policy": "compact,delete",
            "publish.view": "latest",
            "retention.ms": -1,
            "segment.bytes": 9000,
        }
        self.columns = {"name": pa.string(), "small": pa.int32()}
        schema = {"country": pa.string(), "id": pa.int64(), **self.columns}
        self.store.delete_topic("orders")
        self.topic = self.store.create_topic("orders", 2, schema, key=KEY, config=config)

    def rows(self) -> pa.Table:
        count = self.rng.choice([1, 2, 5, 40])
        partitions = len(self.topic.end_offsets())
        ids = [self.rng.randrange(25) for _ in range(count)]
        countries = [self.rng.choice(["de", "fr", None]) for _ in range(count)]
        if self._setting("cleanup.policy") == "delete" and self.rng.random() < 0.5:
            ids[0], countries[0] = None, None  # type: ignore[call-overload]
        made: dict[str, pa.Array] = {
            "country": pa.array(countries, pa.string()),
            "id": pa.array(ids, pa.int64()),
        }
        dead = [self.rng.random() < 0.25 for _ in range(count)]
        for name, kind in self.columns.items():
            values = [None if is_dead else n for n, is_dead in enumerate(dead)]
            made[name] = pa.array(values, pa.int16()).cast(kind)
        times = [EPOCH + timedelta(milliseconds=T0 + self.rng.randrange(5)) for _ in ids]
        made["timestamp"] = pa.array(times, UTC_US)
        if self.rng.random() < 0.3:
            chosen = [self.rng.randrange(partitions) for _ in range(count)]
            made["partition"] = pa.array(chosen, pa.int32())
        return pa.table(made)

    def _restore(self) -> None:
        """What happens after a backup is lost, but for the tables and the files."""
        self._publish()
        manifest = self.store._store.below(f"{self.topic.name}/_manifest")
        backup, columns = contents(manifest), dict(self.columns)
        lost = ("append", "append", "publish", "merge", "append", "publish")
        for operation in lost[self.rng.choice([0, 0, 3]) :]:
            self.do(operation)
        self.before_restore()
        put_back(manifest, backup)
        self.topic, self.columns = self.store.topic(self.topic.name), columns

    def _setting(self, key: str) -> str:
        return self.topic.describe().config[key]

    def _erase(self) -> None:
        self.topic.erase(
            where=(pc.field("id") == self.rng.randrange(25)) & (pc.field("partition") == 0)
        )

    def _retention(self) -> None:
        size = sum(self.topic.segments()["size_bytes"].to_pylist()) // 3
        self.topic.alter(config={"retention.bytes": size})
        self.topic.apply_retention()
        self.topic.alter(config={"retention.bytes": -1})

    def _compact(self) -> None:
        if "compact" in self._setting("cleanup.policy"):
            super()._compact()

    def _toggle_view(self) -> None:
        other = {"latest": "records", "records": "latest"}
        self.topic.alter(config={"publish.view": other[self._setting("publish.view")]})

    def _toggle_policy(self) -> None:
        other = {"delete": "compact,delete", "compact,delete": "delete"}
        policy = other[self._setting("cleanup.policy")]
        self.topic.alter(config={"cleanup.policy": policy})


def expected(topic: Topic, version: int, view: str) -> pa.Table:
    """The rows that a table of this view shows for a version of the topic, sorted. No column is
    ever dropped here, so the columns of the version tell what a tombstone is."""
    at = topic.at(version)
    if view == "records":
        return at.read().read_all().sort_by(ORDER)
    found = at.latest()
    values = [
        name
        for name in found.column_names
        if name not in [*KEY, "partition", "offset", "timestamp"]
    ]
    mask = pc.is_valid(found[values[0]])
    for name in values[1:]:
        mask = pc.or_(mask, pc.is_valid(found[name]))
    return found.filter(mask).sort_by(ORDER)


def expected_rows(topic: Topic, version: int, view: str) -> list[dict[str, Any]]:
    return expected(topic, version, view).to_pylist()


def view_at(topic: Topic, version: int) -> str:
    """The setting `publish.view` at a version."""
    return str(topic.at(version).snapshot.config.publish_view)
