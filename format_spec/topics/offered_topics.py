"""Golden topics with the appends of several writers in one commit."""

from __future__ import annotations

import pyarrow as pa
from golden_place import Place, at, kafka, neutral, placed, record

from pylogtable.append.combine_plan import OneAppend, offer_of, plan_combined
from pylogtable.arguments import NOT_GIVEN
from pylogtable.engine import plan_append
from pylogtable.format.model import Change, Txn
from pylogtable.format.paths import offer_name
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.topic import Topic


def combined(place: Place) -> None:
    config = {"combined.appends": "true", "inline.max.bytes": "16384"}
    topic = place.store.create_topic("topic", partitions=2, config=config)
    zero = [record(n, b"k%d" % n, b"v%d" % n) for n in range(6)]
    one = [record(10, b"o", b"in the same commit")]
    place.tick()
    topic.append(kafka(zero[:1], partition=0))  # version 1
    place.tick()
    snapshot = topic._log.latest()
    others = [
        _append(topic, [kafka(zero[1:3], partition=0), kafka(one, partition=1)], "0a", 7),
        _append(topic, [kafka(zero[3:4], partition=0)], "0b", None),
    ]
    own = _append(topic, [kafka(zero[4:5], partition=0)], None, None)
    _commit(place, topic, plan_combined(snapshot, own, others, DEFAULT_LIMITS))  # version 2
    # This one waits, and is in no version: the next commit did not take it along.
    waiting = _append(topic, [kafka([record(99, b"x", b"waits")], partition=0)], None, None)
    topic._log.manifest.offers.put(offer_of(waiting, topic._log.latest(), "0c"))
    place.tick()
    topic.append(kafka(zero[5:], partition=0))  # version 3
    place.tick()
    topic.merge()  # versions 4 and 5
    first, second = placed(0, 0, zero), placed(1, 0, one)
    start = {0: 0, 1: 0}
    place.expect(
        versions={
            "1": at(start, {0: 1, 1: 0}, first[:1]),
            "2": at(start, {0: 5, 1: 1}, [*first[:5], *second]),
            "3": at(start, {0: 6, 1: 1}, [*first, *second]),
            "5": at(start, {0: 6, 1: 1}, [*first, *second]),
        },
        latest=[neutral(row) for row in [*first, *second]],
    )
    place.case(
        "One commit has the appends of three writers, two of which had offered them, and an offer "
        "waits beside the log",
        ["OFFER-1", "OFFER-2", "OFFER-3", "OFFER-4", "INL-1", "LOG-2", "TXN-2"],
    )


def _append(
    topic: Topic, tables: list[pa.Table], offer_id: str | None, txn: int | None
) -> OneAppend:
    staged = plan_append(topic).stage(tables)
    name = None if offer_id is None else offer_name(topic.version or 0, offer_id)
    numbered = None if txn is None else Txn(app_id="etl", version=txn)
    staged_at_ms = staged.staged_at_ms
    return OneAppend(staged.files, staged.rows, numbered, NOT_GIVEN, staged_at_ms, name)


def _commit(place: Place, topic: Topic, change: Change) -> None:
    landed = topic._log.attempt(topic._log.known, change, place.runtime.new_id())
    assert landed is not None


OFFERED_TOPICS = (combined,)
