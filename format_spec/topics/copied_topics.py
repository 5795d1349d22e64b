"""Golden topics that are copies of other topics."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from golden_place import T0_US, EarlierStore, Place, at, kafka, neutral, placed, record

from pylogtable.format.model import CopyOf
from pylogtable.storage.memory import MemoryStore


def mirrored(place: Place) -> None:
    source = EarlierStore(MemoryStore("source"), place.runtime).create_topic("orders", partitions=2)
    zero = [record(n, b"k%d" % n, b"v%d" % n) for n in range(4)]
    one = [record(9, b"o", b"o", [{"key": "trace", "value": b"\x01"}])]
    place.tick()
    source.append([kafka(zero[:3], partition=0), kafka(one, partition=1)], txn=("etl", 1))
    place.tick()
    source.delete_records({0: 1})
    place.tick()
    source.mirror(place.store, name="topic")  # versions 0 and 1
    place.tick()
    source.append(kafka(zero[3:], partition=0), txn=("etl", 2))
    place.tick()
    source.erase(keys=[b"k1"])
    source.group("billing").commit({0: 2}, metadata="halfway")
    place.tick()
    source.mirror(place.store, name="topic", groups=True)  # versions 2 (the erase) and 3
    place.tick()
    own = [record(20, b"new", b"after a failover")]
    place.open().append(kafka(own, partition=1), txn=("etl", 3))  # version 4
    first, second = placed(0, 0, zero), [*placed(1, 0, one), *placed(1, 1, own)]
    start = {0: 1, 1: 0}
    place.expect(
        versions={
            "0": at(start, {0: 1, 1: 0}, []),
            "1": at(start, {0: 3, 1: 1}, [*first[1:3], second[0]]),
            "2": at(start, {0: 3, 1: 1}, [first[2], second[0]]),
            "3": at(start, {0: 4, 1: 1}, [*first[2:], second[0]]),
            "4": at(start, {0: 4, 1: 2}, [*first[2:], *second]),
        },
        latest=[neutral(row) for row in (*first[2:], *second)],
        offsets_for_time=[
            {"timestamp_us": T0_US, "offsets": {0: 2, 1: 0}},
            {"timestamp_us": T0_US + 10, "offsets": {0: None, 1: 1}},
        ],
        groups={"billing": {"number": 0, "positions": {0: [2, "halfway"]}, "lag": {0: 2}}},
        group_states={"billing": [0]},
        count={"1": 3, "3": 3, "4": 4},
    )
    place.case(
        "A copy: it begins at the log start of its source, gets records, txns, an erase and the "
        "positions of a group from it, and an append of its own ends that",
        ["GRP-2", "LOG-7", "LOG-11", "META-9", "MIR-1", "MIR-2", "MIR-3", "MIR-6", "MIR-7", "MIR-8",
         "READ-3", "READ-4", "TXN-1", "TXN-2"],
    )  # fmt: skip


def noted(place: Place) -> None:
    source = EarlierStore(MemoryStore("noted"), place.runtime).create_topic("orders", partitions=1)
    rows = [record(n, b"k%d" % n, b"v%d" % n) for n in range(3)]
    place.tick()
    source.append(kafka(rows[:1]), txn=("etl", 1), note={"read_to": {"0": 7}, "by": "é"})
    source.append(kafka([]), txn=("load", 5), note="file 5")
    place.tick()
    source.mirror(place.store, name="topic")  # versions 0 and 1
    place.tick()
    place.open().append(kafka(rows[1:2]), txn=("load", 6))  # version 2
    place.tick()
    place.open().append(kafka(rows[2:]), txn=("job", 0), note=[1, -2.5, None, True])  # version 3
    all_rows = placed(0, 0, rows)
    place.expect(
        versions={
            str(version): at({0: 0}, {0: end}, all_rows[:end])
            for version, end in ((0, 0), (1, 1), (2, 2), (3, 3))
        },
        latest=[neutral(row) for row in all_rows],
        txns={
            "etl": {"version": 1, "commit": 1, "note": {"read_to": {"0": 7}, "by": "é"}},
            "load": {"version": 6, "commit": 2, "note": None},
            "job": {"version": 0, "commit": 3, "note": [1, -2.5, None, True]},
        },
    )
    place.case(
        "A copy whose txns have notes: one came from its source, one went with a later txn, and "
        "one is its own",
        ["MIR-3", "TXN-1", "TXN-2", "TXN-7"],
    )


SOURCE = CopyOf(
    kind="kafka",
    name="orders",
    cluster="MkU3OEVBNTcwNTJENDM2Qg",
    address="broker:9092",
    app_id="kafka:MkU3OEVBNTcwNTJENDM2Qg/orders",
)
FIRST = [record(n, b"k%d" % n, b"v%d" % n) for n in range(3)]
#: Transactions of Kafka have left holes.
OFFSETS = [5, 7, 8]


def guarded(place: Place) -> None:
    rows = _imported(place)
    place.open().alter(config={"retention.ms": 1000})  # version 2
    place.expect(
        versions={
            "0": at({0: 5, 1: 0}, {0: 5, 1: 0}, []),
            "2": at({0: 5, 1: 0}, {0: 9, 1: 0}, rows),
        },
        latest=[neutral(row) for row in rows],
        txns={SOURCE.app_id: {"version": 9, "commit": 1, "note": None}},
    )
    place.case(
        "A copy of a topic of Kafka, which takes appends of its import only: it can be read, and "
        "refuses the append of anybody else",
        ["GUARD-1", "GUARD-2", "LOG-11", "META-9"],
        when="append",
        error={"class": "InvalidRequestError"},
    )


def promoted(place: Place) -> None:
    rows = _imported(place)
    place.open().promote()  # version 2
    place.tick()
    own = [record(20, b"new", b"after the cut-over")]
    place.open().append(kafka(own, partition=0))  # version 3
    after = [*rows, *placed(0, 9, own)]
    place.expect(
        versions={
            "2": at({0: 5, 1: 0}, {0: 9, 1: 0}, rows),
            "3": at({0: 5, 1: 0}, {0: 10, 1: 0}, after),
        },
        latest=[neutral(row) for row in after],
    )
    place.case(
        "A copy of a topic of Kafka that was promoted, and has a record of its own since",
        ["GUARD-1", "GUARD-3", "LOG-11", "META-9"],
    )


def _imported(place: Place) -> list[dict[str, Any]]:
    """A guarded copy, with an append of its import in version 1."""
    topic = place.store._create_copy(SOURCE, "topic", 2, start_offsets={0: 5})
    place.tick()
    data = kafka(FIRST, partition=0).append_column("offset", pa.array(OFFSETS, pa.int64()))
    topic.append(data, keep_offsets=True, txn=(SOURCE.app_id, 9))
    place.tick()
    return [
        {"partition": 0, "offset": offset, **row}
        for offset, row in zip(OFFSETS, FIRST, strict=True)
    ]


COPIED_TOPICS = (mirrored, noted, guarded, promoted)
