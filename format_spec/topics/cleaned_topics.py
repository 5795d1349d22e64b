"""Golden topics after a compaction and an erase."""

from __future__ import annotations

import pyarrow.compute as pc
from golden_place import T0_US, Place, Row, at, kafka, neutral, placed, record


def compacted(place: Place) -> None:
    topic = place.store.create_topic("topic", config={"cleanup.policy": "compact"})
    keys = [b"a", b"b", b"c", b"a", b"b", b"d", b"e", b"f", b"c", b"d"]
    deletes = {4, 7, 8}
    rows = [record(n, k, None if n in deletes else b"v%d" % n) for n, k in enumerate(keys)]
    for start, end in ((0, 4), (4, 6), (6, 8)):
        place.tick()
        topic.append(kafka(rows[start:end]))
    place.tick()
    first_clean_ms = place.now_ms
    topic.compact()  # version 4: offsets 0 and 1 go; two entries get a time for their tombstones
    place.tick(24 * 3_600_000)
    topic.compact()  # version 5: their time has come
    place.tick()
    topic.append(kafka(rows[8:]))
    place.tick()
    second_clean_ms = place.now_ms
    topic.compact(force=True)  # version 7
    place.tick()
    topic.merge()  # version 8
    full = placed(0, 0, rows)

    def left(*offsets: int) -> list[Row]:
        return [full[n] for n in offsets]

    day = 24 * 3_600_000
    place.expect(
        versions={
            "3": at({0: 0}, {0: 8}, full[:8], clean_ends={0: 0}),
            "4": at({0: 0}, {0: 8}, left(2, 3, 4, 5, 6, 7), clean_ends={0: 8},
                    segments=[[0, 4, 2, 0, None], [4, 6, 2, 1, first_clean_ms + day],
                              [6, 8, 2, 1, first_clean_ms + day]]),
            "5": at({0: 0}, {0: 8}, left(2, 3, 5, 6), clean_ends={0: 8},
                    segments=[[0, 4, 2, 0, None], [4, 8, 2, 0, None]]),
            "7": at({0: 0}, {0: 10}, left(3, 6, 8, 9), clean_ends={0: 10},
                    segments=[[0, 8, 2, 0, None], [8, 10, 2, 1, second_clean_ms + day]]),
            "8": at({0: 0}, {0: 10}, left(3, 6, 8, 9), clean_ends={0: 10},
                    segments=[[0, 10, 4, 1, second_clean_ms + day]]),
        },
        latest=[neutral(r) for r in left(3, 6, 8, 9)],
        offsets_for_time=[{"timestamp_us": T0_US + 4, "offsets": {0: 6}}],
        reads=[{"version": 8, "start": {0: 4}, "end": {0: 9}, "offsets": {0: [6, 8]}}],
        tombstones={"0": 1},
        shifts=[0],
    )  # fmt: skip
    place.case(
        "A changelog compacted three times and merged: tombstones get a time without a new file, "
        "are dropped a day later, and keep theirs when segments are joined",
        ["CLEAN-3", "CLEAN-4", "LOG-7", "LOG-9", "MERGE-1", "READ-6", "REC-3", "SEG-1", "SEG-6"],
    )


def erased(place: Place) -> None:
    topic = place.store.create_topic("topic", partitions=2)
    keys = [b"a", b"b", b"c", b"a"]
    rows = [record(n, keys[n % 4], b"v%d" % n) for n in range(12)]
    for start in (0, 4, 8):
        place.tick()
        topic.append(kafka(rows[start : start + 4], partition=0))
    place.tick()
    topic.append(kafka([record(20, b"a", b"x")], partition=1))
    place.tick()
    topic.delete_records({0: 2})  # version 5: the record at 0 is in a file that is live
    place.tick()
    topic.erase(keys=[b"a"])  # versions 6 and 7, one for each partition
    place.tick()
    topic.erase(where=(pc.field("partition") == 0) & (pc.field("offset") >= 8))  # version 8
    place.tick()
    topic.append(kafka([record(30, b"a", b"again")], partition=1))
    full = placed(0, 0, rows)
    other = placed(1, 0, [record(20, b"a", b"x"), record(30, b"a", b"again")])

    def left(*offsets: int) -> list[Row]:
        return [full[n] for n in offsets]

    start, end = {0: 2, 1: 0}, {0: 12, 1: 1}
    place.expect(
        versions={
            "5": at(start, end, [*full[2:], other[0]]),
            "7": at(start, end, left(2, 5, 6, 9, 10),
                    segments=[[0, 4, 1, 0, None], [4, 8, 2, 0, None], [8, 12, 2, 0, None],
                              [0, 1, 0, 0, None]]),
            "8": at(start, end, left(2, 5, 6)),
            "9": at(start, {0: 12, 1: 2}, [*left(2, 5, 6), other[1]]),
        },
        latest=[neutral(full[5]), neutral(full[6]), neutral(other[1])],
        offsets_for_time=[{"timestamp_us": T0_US + 3, "offsets": {0: 5, 1: 1}}],
        reads=[
            {"version": 9, "start": {0: 3, 1: 0}, "end": {0: 12, 1: 1},
             "offsets": {0: [5, 6], 1: []}},
        ],
        count={"5": 11, "7": 5, "8": 3, "9": 4},
    )  # fmt: skip
    place.case(
        "A topic that is not compacted, with records erased by key and by a condition: holes, a "
        "segment without records at the end of each partition, a key that is appended again",
        ["ERASE-1", "LOG-4", "LOG-7", "LOG-8", "READ-3", "READ-4", "READ-6", "SEG-5", "SEG-6"],
    )


CLEANED_TOPICS = (
    compacted,
    erased,
)
