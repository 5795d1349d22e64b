"""The offsets of a stream, as they lie in its checkpoint, and how one goes on from them. Pure.

Spark compares offsets as text and knows nothing of what is in them, so keys are sorted. A topic's
id goes with its positions: of a topic that was deleted and created anew they mean nothing. A new
query begins at a symbol; where that is gets decided once, and is written into the end offset of its
first batch as `from`, since Spark keeps that and asks again for the beginning when it repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pylogtable import InvalidRequestError
from pyspark_pylogtable.positions import Ranges

Offset = Mapping[str, Any]

INITIAL: dict[str, Any] = {"initial": True}


@dataclass(frozen=True)
class Place:
    """The next offset of each partition of a topic."""

    topic_id: str
    offsets: Mapping[int, int]


Places = dict[str, Place]


@dataclass(frozen=True)
class Log:
    """What there is to read of a topic: of the partitions that the stream wants."""

    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]

    def up_to(self, target: Place) -> Log:
        """As if nothing had been appended since the target was the end."""
        return Log(
            self.topic_id,
            {p: self.starts[p] for p in target.offsets if p in self.starts},
            {p: min(self.ends[p], end) for p, end in target.offsets.items() if p in self.ends},
        )


def is_initial(offset: Offset) -> bool:
    return isinstance(offset, Mapping) and "initial" in offset


def encode(places: Places, began: Places | None = None) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    if began is not None:
        encoded["from"] = _encode(began)
    encoded["topics"] = _encode(places)
    return encoded


def _encode(places: Places) -> dict[str, Any]:
    return {
        topic: {
            "id": place.topic_id,
            "offsets": {str(number): place.offsets[number] for number in sorted(place.offsets)},
        }
        for topic, place in sorted(places.items())
    }


def decode(offset: Offset) -> Places:
    return _decode(offset, "topics")


def decode_start(start: Offset, end: Offset) -> Places:
    """Where the batch that ends at `end` begins."""
    return _decode(end, "from") if is_initial(start) else decode(start)


def _decode(offset: Offset, part: str) -> Places:
    try:
        return {
            topic: Place(
                entry["id"], {int(number): int(at) for number, at in entry["offsets"].items()}
            )
            for topic, entry in offset[part].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRequestError(
            f"the checkpoint has the offset {offset}, which is not one of pylogtable's: it belongs "
            "to another source. Give the query a checkpoint of its own"
        ) from error


def ends_of(logs: Mapping[str, Log]) -> Places:
    return {topic: Place(log.topic_id, log.ends) for topic, log in logs.items()}


def go_on(start: Places, logs: Mapping[str, Log], losses: list[str]) -> Places:
    """From where each partition is read on; what cannot be read is noted in `losses`.

    A partition that is new begins at 0, a topic that is new at its earliest record. What is known
    of topics that are not there any more is kept.
    """
    places: Places = {}
    for topic, log in logs.items():
        place = start.get(topic)
        if place is None or place.topic_id != log.topic_id:
            if place is not None:
                losses.append(_anew(topic, place, log))
            places[topic] = Place(log.topic_id, dict(log.starts))
            continue
        if gone := sorted(set(place.offsets) - set(log.ends)):
            losses.append(
                f"partition(s) {', '.join(map(str, gone))} of topic {topic!r} are in the "
                f"checkpoint, and this query does not read them; it reads {sorted(log.ends)}"
            )
        places[topic] = Place(
            log.topic_id,
            {p: _clamp(topic, p, place.offsets.get(p, 0), log, losses) for p in log.ends},
        )
    for topic, place in start.items():
        if topic not in logs:
            losses.append(
                f"topic {topic!r} (id {place.topic_id}) was read up to {_shown(place.offsets)}, "
                "and now it is not there, or not asked for"
            )
            places[topic] = place
    return places


def plan_ranges(start: Places, end: Places, logs: Mapping[str, Log], losses: list[str]) -> Ranges:
    """What a batch from `start` to `end` reads; what cannot be read is noted in `losses`."""
    ranges: Ranges = {}
    for topic, last in end.items():
        first, log = start.get(topic), logs.get(topic)
        if first == last:
            continue
        if log is None or log.topic_id != last.topic_id:
            losses.append(
                f"topic {topic!r} (id {last.topic_id}) is to be read up to {_shown(last.offsets)}, "
                f"and {'there is none' if log is None else f'now has the id {log.topic_id}'}"
            )
            continue
        if first is not None and first.topic_id != last.topic_id:
            losses.append(_anew(topic, first, log))
            first = None
        spans: dict[int, tuple[int, int]] = {}
        for number, to in last.offsets.items():
            if number not in log.ends:
                losses.append(f"{topic}-{number} is to be read up to {to}, and does not exist")
                continue
            at = log.starts[number] if first is None else first.offsets.get(number, 0)
            if at == to:
                continue
            low = _clamp(topic, number, at, log, losses)
            high = _clamp(topic, number, to, log, losses if to > log.ends[number] else [])
            if low < high:
                spans[number] = (low, high)
        if spans:
            ranges[topic] = spans
    return ranges


def covers(logs: Mapping[str, Log], end: Places) -> bool:
    """Whether all up to `end` can be planned by what is known."""
    return all(
        topic in logs
        and logs[topic].topic_id == place.topic_id
        and all(at <= logs[topic].ends.get(number, -1) for number, at in place.offsets.items())
        for topic, place in end.items()
    )


def _clamp(topic: str, partition: int, at: int, log: Log, losses: list[str]) -> int:
    low, high = log.starts[partition], log.ends[partition]
    if at < low:
        losses.append(
            f"{topic}-{partition} was to be read from offset {at}, and its log starts at {low}: "
            "retention or delete_records removed what is between"
        )
    elif at > high:
        losses.append(
            f"{topic}-{partition} was read up to offset {at}, and its log ends at {high}: it is an "
            "older copy of the topic"
        )
    return min(max(at, low), high)


def _anew(topic: str, place: Place, log: Log) -> str:
    return (
        f"topic {topic!r} was created anew: it was read up to {_shown(place.offsets)} as id "
        f"{place.topic_id}, and as id {log.topic_id} it ends at {_shown(log.ends)}"
    )


def _shown(offsets: Mapping[int, int], most: int = 10) -> str:
    listed: Sequence[str] = [f"{p}:{at}" for p, at in sorted(offsets.items())]
    return _braces(listed[:most], len(listed) > most)


def _braces(listed: Iterable[str], more: bool) -> str:
    return "{" + ", ".join(listed) + (", …}" if more else "}")
