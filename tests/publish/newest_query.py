"""The query of the guide that shows the newest record of each key, and a topic that it has to get
right: tombstones, keys that moved to another partition, records that compaction has not seen."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pylogtable import Store, Topic
from tests.builders import EPOCH, T0, UTC_US
from tests.documents import code, read, section

KEYS = 40


def guide_query(table: str = "customers") -> str:
    """The SELECT of the guide, over this table. Spark SQL reads it as it stands."""
    text = section(read("pylogtable/publish/README.md"), "## Compacted topics first")
    ((_, sql),) = code(text, "sql")
    head, _, query = sql.partition(" AS\n")
    assert head == "CREATE VIEW customers_now"
    assert query.count("FROM customers\n") == 1
    return query.strip().removesuffix(";").replace("FROM customers\n", f"FROM {table}\n")


def quoted_query(table: str) -> str:
    """The same for engines in which `offset` is a reserved word, as the guide says."""
    return guide_query(table).replace("ORDER BY offset", 'ORDER BY "offset"')


def customers(store: Store, seed: int, **config: str) -> Topic:
    rng = random.Random(seed)
    columns = {"customer_id": pa.int64(), "credit": pa.float64()}
    settings = {"cleanup.policy": "compact", **config}
    topic = store.create_topic("customers", 2, columns, key="customer_id", config=settings)
    for step in range(12):
        if step == 4:
            topic.compact(force=True)
        if step == 6:
            topic.alter(partitions=3)  # some keys move
        rows = rng.randrange(1, 30)
        # Also times that go back. All differ, because of two equal ones SQL may take the other.
        times = [EPOCH + timedelta(milliseconds=T0 + ms) for ms in _times(rng, step, rows)]
        topic.append(
            pa.table(
                {
                    "customer_id": pa.array(rng.choices(range(KEYS), k=rows), pa.int64()),
                    "credit": rng.choices([None, *(n / 4 for n in range(9))], k=rows),
                    "timestamp": pa.array(times, UTC_US),
                }
            )
        )
    return topic


def _times(rng: random.Random, step: int, rows: int) -> list[int]:
    late = rng.sample(range(1000), rows)
    return [ms * 12 + step for ms in late]


def expected_rows(topic: Topic, version: int | None = None) -> list[tuple[Any, ...]]:
    """What `latest` has, without tombstones."""
    newest = topic.latest(columns=["customer_id", "credit"], version=version)
    return sorted_rows(newest.filter(pc.is_valid(newest["credit"])))


def sorted_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = (table[name].to_pylist() for name in ("customer_id", "credit"))
    return sorted(zip(*columns, strict=True))
