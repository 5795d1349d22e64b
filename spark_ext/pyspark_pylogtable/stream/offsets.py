"""The offsets of a stream as its checkpoint holds them, and how a query continues from them. Pure.

Spark compares offsets as text, so keys are sorted. The id of a topic is stored with its offsets,
because they mean nothing for a topic that was deleted and recreated under the same name. A new
query starts at the placeholder INITIAL. The real start is decided once and stored as `from` in the
end offset of the first batch: Spark keeps that offset, and passes INITIAL again if it repeats the
batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pylogtable import InvalidRequestError
from pyspark_pylogtable.request.ranges import Ranges

#: An offset as Spark stores and passes it: a JSON object whose contents are ours.
RawOffset = Mapping[str, Any]

INITIAL: dict[str, Any] = {"initial": True}


@dataclass(frozen=True)
class TopicOffsets:
    """The next offset to read of each partition of a topic."""

    topic_id: str
    offsets: Mapping[int, int]


#: By the name of the topic.
StreamOffsets = dict[str, TopicOffsets]


@dataclass(frozen=True)
class Available:
    """The offsets that can be read of a topic, in the partitions that the stream reads."""

    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def up_to(self, target: TopicOffsets) -> Available:
        """The same offsets, without records that were appended after `target`."""
        return Available(
            self.topic_id,
            {p: self.starts[p] for p in target.offsets if p in self.starts},
            {p: min(self.ends[p], end) for p, end in target.offsets.items() if p in self.ends},
        )


def is_initial(offset: RawOffset) -> bool:
    """True for the start of a query that has no batch yet."""
    return isinstance(offset, Mapping) and "initial" in offset


def encode(offsets: StreamOffsets, began: StreamOffsets | None = None) -> dict[str, Any]:
    """The raw offset; `began` is the start of the query, for the end of its first batch."""
    encoded: dict[str, Any] = {}
    if began is not None:
        encoded["from"] = _encode(began)
    encoded["topics"] = _encode(offsets)
    return encoded


def _encode(offsets: StreamOffsets) -> dict[str, Any]:
    return {
        topic: {
            "id": of_topic.topic_id,
            "offsets": {str(p): of_topic.offsets[p] for p in sorted(of_topic.offsets)},
        }
        for topic, of_topic in sorted(offsets.items())
    }


def decode(offset: RawOffset) -> StreamOffsets:
    """The offsets by topic; raises if another source wrote this offset."""
    return _decode(offset, "topics")


def decode_start(start: RawOffset, end: RawOffset) -> StreamOffsets:
    """The start of the batch from `start` to `end`, even if `start` is the placeholder."""
    return _decode(end, "from") if is_initial(start) else decode(start)


def with_latest(
    end: RawOffset, latest: StreamOffsets, metrics: Mapping[str, Any]
) -> dict[str, Any]:
    """The end of a batch that also tells the ends of the topics. Spark before 4.2 asks for nothing
    else that it shows. In the checkpoint nobody reads what is added."""
    read = decode(end)
    unread: StreamOffsets = {}
    for topic, newest in latest.items():
        known = read[topic].offsets if topic in read else {}
        further = {p: to for p, to in newest.offsets.items() if to != known.get(p)}
        if further:
            unread[topic] = TopicOffsets(newest.topic_id, further)
    return {**end, **({"latest": _encode(unread)} if unread else {}), "metrics": dict(metrics)}


def latest_of(offset: RawOffset) -> StreamOffsets:
    """The ends of the topics, from what Spark shows as the latest offset."""
    ends = decode(offset)
    for topic, unread in (_decode(offset, "latest") if "latest" in offset else {}).items():
        known = ends[topic].offsets if topic in ends else {}
        ends[topic] = TopicOffsets(unread.topic_id, {**known, **unread.offsets})
    return ends


def _decode(offset: RawOffset, part: str) -> StreamOffsets:
    try:
        return {
            topic: TopicOffsets(
                entry["id"], {int(number): int(at) for number, at in entry["offsets"].items()}
            )
            for topic, entry in offset[part].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequestError(
            f"the checkpoint has the offset {offset}, which pylogtable did not write: it belongs "
            "to another source. Give the query a checkpoint of its own"
        ) from error


def ends_of(available: Mapping[str, Available]) -> StreamOffsets:
    """The end of everything that can be read."""
    return {topic: TopicOffsets(has.topic_id, has.ends) for topic, has in available.items()}


def resume(
    start: StreamOffsets, available: Mapping[str, Available], losses: list[str]
) -> StreamOffsets:
    """Where each partition is read next; records that are gone are reported in `losses`.

    A new partition starts at 0, a new topic at its earliest record. The offsets of a topic that is
    gone are kept.
    """
    resumed: StreamOffsets = {}
    for topic, has in available.items():
        known = start.get(topic)
        if known is None or known.topic_id != has.topic_id:
            if known is not None:
                losses.append(_recreated(topic, known, has))
            resumed[topic] = TopicOffsets(has.topic_id, dict(has.starts))
            continue
        if gone := sorted(set(known.offsets) - set(has.ends)):
            losses.append(
                f"partition(s) {', '.join(map(str, gone))} of topic {topic!r} are in the "
                f"checkpoint, but this query does not read them; it reads {sorted(has.ends)}"
            )
        resumed[topic] = TopicOffsets(
            has.topic_id,
            {p: _clamp(topic, p, known.offsets.get(p, 0), has, losses) for p in has.ends},
        )
    for topic, known in start.items():
        if topic not in available:
            losses.append(
                f"topic {topic!r} (id {known.topic_id}) was read up to {_shown(known.offsets)}, "
                "and now it does not exist or is not subscribed"
            )
            resumed[topic] = known
    return resumed


def plan_ranges(
    start: StreamOffsets,
    end: StreamOffsets,
    available: Mapping[str, Available],
    losses: list[str],
) -> Ranges:
    """What a batch from `start` to `end` reads; records that are gone are reported in `losses`."""
    ranges: Ranges = {}
    for topic, last in end.items():
        first, has = start.get(topic), available.get(topic)
        if first == last:
            continue
        if has is None or has.topic_id != last.topic_id:
            losses.append(
                f"the batch reads topic {topic!r} (id {last.topic_id}) up to "
                f"{_shown(last.offsets)}, but the topic "
                f"{'does not exist' if has is None else f'now has the id {has.topic_id}'}"
            )
            continue
        if first is not None and first.topic_id != last.topic_id:
            losses.append(_recreated(topic, first, has))
            first = None
        spans: dict[int, tuple[int, int]] = {}
        for number, to in last.offsets.items():
            if number not in has.ends:
                losses.append(f"the batch reads {topic}-{number} up to {to}, but it does not exist")
                continue
            at = has.starts[number] if first is None else first.offsets.get(number, 0)
            if at == to:
                continue
            low = _clamp(topic, number, at, has, losses)
            high = _clamp(topic, number, to, has, losses if to > has.ends[number] else [])
            if low < high:
                spans[number] = (low, high)
        if spans:
            ranges[topic] = spans
    return ranges


def covers(available: Mapping[str, Available], end: StreamOffsets) -> bool:
    """True if everything up to `end` is available."""
    return all(
        topic in available
        and available[topic].topic_id == of_topic.topic_id
        and all(at <= available[topic].ends.get(p, -1) for p, at in of_topic.offsets.items())
        for topic, of_topic in end.items()
    )


def _clamp(topic: str, partition: int, at: int, has: Available, losses: list[str]) -> int:
    low, high = has.starts[partition], has.ends[partition]
    if at < low:
        losses.append(
            f"{topic}-{partition}: this query continues at offset {at}, but its log starts at "
            f"{low}: retention or delete_records removed the records in between"
        )
    elif at > high:
        losses.append(
            f"{topic}-{partition} was read up to offset {at}, but its log ends at {high}: this is "
            "an older copy of the topic"
        )
    return min(max(at, low), high)


def _recreated(topic: str, known: TopicOffsets, has: Available) -> str:
    return (
        f"topic {topic!r} was deleted and recreated, or is a copy in another store: it was read up "
        f"to {_shown(known.offsets)} as id {known.topic_id}, and as id {has.topic_id} it ends at "
        f"{_shown(has.ends)}. A copy has the same offsets: give them to a new checkpoint as "
        "startingOffsets. With failOnDataLoss=false all of it is read again"
    )


def _shown(offsets: Mapping[int, int], most: int = 10) -> str:
    listed = [f"{p}:{at}" for p, at in sorted(offsets.items())]
    more = ", …" if len(listed) > most else ""
    return "{" + ", ".join(listed[:most]) + more + "}"
