"""A small store that has something of everything a report can show."""

from __future__ import annotations

from pylogtable.storage.base import ObjectStore
from pylogtable.storage.memory import MemoryStore
from pylogtable.store import Store
from tests.builders import Clock, kafka, make_store

HOUR_MS = 3_600_000
LONG = "clicks.with_a_rather_long_topic_name.v2"


def example_store(objects: ObjectStore | None = None) -> tuple[Store, Clock]:
    """Topics `orders` (past retention, with groups), `profiles` (compacted, dirty), one with a long
    name and skewed partitions, `empty`, and `payments`, which is damaged."""
    objects = MemoryStore() if objects is None else objects
    clock = Clock()
    store = make_store(objects, clock, in_files=True)
    orders = store.create_topic(
        "orders", partitions=3, config={"retention.ms": 30 * HOUR_MS, "segment.bytes": 20_000}
    )
    profiles = store.create_topic("profiles", partitions=2, config={"cleanup.policy": "compact"})
    clicks = store.create_topic(LONG, partitions=4)
    store.create_topic("empty", partitions=2)
    for hour in range(48):
        clock.tick(HOUR_MS)
        orders.append(kafka([f"{hour}-{number}" for number in range(20 + hour % 12)]))
        if hour % 6 == 0:
            profiles.append(kafka([f"user-{number}" for number in range(40)]))
        if hour == 20:
            profiles.compact(force=True)
            orders.merge()
    clicks.append(kafka(["one"] * 12_000))
    ends = orders.end_offsets()
    orders.group("billing").commit({number: end - number for number, end in ends.items()})
    orders.group("search-index-of-the-web-shop").commit(dict.fromkeys(ends, 0))
    store.create_topic("payments").append(kafka(["a"]))
    objects.write("payments/_manifest/00000000000000000001.json", b"{<i>nope</i>")
    return store, clock
