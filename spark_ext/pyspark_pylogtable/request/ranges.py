"""Resolves the start and end of a read to offsets, by Kafka's rules.

A start is inclusive, an end is exclusive. If Spark's Kafka connector has an error condition for a
mistake, the message begins with it in brackets, because Spark shows only the text of a Python
exception.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from pylogtable import InvalidRequestError
from pyspark_pylogtable.request.bounds import (
    ANY_TOPIC,
    EARLIEST,
    EPOCH,
    LATEST,
    Bound,
    everywhere,
)
from pyspark_pylogtable.request.options import Options

Ranges = dict[str, dict[int, tuple[int, int]]]
Assigned = Mapping[str, Sequence[int]]

_FROM_EARLIEST = everywhere("startingOffsets", EARLIEST)
_FROM_LATEST = everywhere("startingOffsets", LATEST)
_TO_LATEST = everywhere("endingOffsets", LATEST)
_SHOWN = 20


class TopicView(Protocol):
    """The part of `pylogtable.View` that resolving needs: offsets and times of one version."""

    @property
    def start_offsets(self) -> dict[int, int]: ...

    @property
    def end_offsets(self) -> dict[int, int]: ...

    def offsets_for_time(
        self, when: int | datetime, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]: ...


def check_batch(options: Options) -> None:
    """Raise if the bounds are wrong for a batch read. This needs no topic."""
    start, _ = _bounds(options)
    _refuse(start, LATEST, "starting offset{} can't be latest for batch queries", "earliest")
    check_bounds(options)


def check_bounds(options: Options) -> None:
    """Like `check_batch`, but a start at latest is allowed: the read may turn out to be a
    stream."""
    start, end = _bounds(options)
    _refuse(end, EARLIEST, "ending offset{} can't be earliest for batch queries", "latest")
    _check_same_partitions(start, end)
    _check_order(start, end, [*start.entries(), *end.entries()])


def resolve_batch(options: Options, views: Mapping[str, TopicView], assigned: Assigned) -> Ranges:
    """The range to read of every assigned partition. The caller has checked that the partitions
    exist."""
    check_batch(options)
    if not assigned:
        return {}
    start, end = (_with_topic(bound, assigned) for bound in _bounds(options))
    _check_same_partitions(start, end)
    _check_cover(start, assigned, "START")
    _check_cover(end, assigned, "END")
    _check_order(start, end, _pairs(assigned))
    losses: list[str] = []
    ranges: Ranges = {}
    for topic, partitions in assigned.items():
        resolver = _Resolver(topic, views[topic], partitions, losses)
        starts = resolver.resolve(start, must_match=options.starting_strategy == "error")
        ends = resolver.resolve(end, must_match=False)
        ranges[topic] = {p: (starts[p], ends[p]) for p in partitions}
    report_losses(losses, options.fail_on_data_loss, "Change the offset")
    for topic, partition in _pairs(assigned):
        _check_resolved(start, end, f"{topic}-{partition}", *ranges[topic][partition])
    return ranges


def resolve_start(
    options: Options, views: Mapping[str, TopicView], assigned: Assigned
) -> dict[str, dict[int, int]]:
    """Where a new stream starts in every assigned partition: at latest by default."""
    if not assigned:
        return {}
    start = _with_topic(options.starting or _FROM_LATEST, assigned)
    _check_cover(start, assigned, "START")
    losses: list[str] = []
    must_match = options.starting_strategy == "error"
    starts = {
        topic: _Resolver(topic, views[topic], partitions, losses).resolve(start, must_match)
        for topic, partitions in assigned.items()
    }
    report_losses(losses, options.fail_on_data_loss, "Change the offset")
    return starts


class _Resolver:
    """Resolves bounds for the partitions of one topic, and adds missing offsets to `losses`."""

    def __init__(
        self, topic: str, view: TopicView, partitions: Sequence[int], losses: list[str]
    ) -> None:
        self.topic = topic
        self.view = view
        self.partitions = partitions
        self.losses = losses
        self.starts = view.start_offsets
        self.ends = view.end_offsets

    def resolve(self, bound: Bound, must_match: bool) -> dict[int, int]:
        """An offset for each partition. A time after the last record gives the end of the
        partition, or an error with `must_match`."""
        wanted = {p: v for p in self.partitions if (v := bound.at(self.topic, p)) is not None}
        if not bound.is_time:
            return {p: self._offset(bound.option, p, value) for p, value in wanted.items()}
        by_time: dict[int, list[int]] = {}
        for partition, time in wanted.items():
            by_time.setdefault(time, []).append(partition)
        resolved: dict[int, int] = {}
        for time, asked in by_time.items():
            for partition, offset in self.view.offsets_for_time(_moment(time), asked).items():
                if offset is None and must_match:
                    raise self._no_match(bound.option, partition, time)
                resolved[partition] = self.ends[partition] if offset is None else offset
        return resolved

    def _offset(self, option: str, partition: int, value: int) -> int:
        low, high = self.starts[partition], self.ends[partition]
        if value == EARLIEST:
            return low
        if value == LATEST:
            return high
        asks = f"{option} asks for offset {value} of {self.topic}-{partition}"
        if value < low:
            self.losses.append(f"{asks}, whose log starts at {low}: older records were removed")
        elif value > high:
            why = "the topic was recreated, or an older version is read"
            self.losses.append(f"{asks}, whose log ends at {high}: {why}")
        return min(max(value, low), high)

    def _no_match(self, option: str, partition: int, time: int) -> InvalidRequestError:
        return InvalidRequestError(
            f"No offset matched from request of topic-partition {self.topic}-{partition} and "
            f"timestamp {_shown_time(time)} ({option}): it has no record that late; its end offset "
            f"is {self.ends[partition]}. Ask for an earlier time, or set "
            "startingOffsetsByTimestampStrategy=latest to start such partitions at their end"
        )


def _bounds(options: Options) -> tuple[Bound, Bound]:
    return options.starting or _FROM_EARLIEST, options.ending or _TO_LATEST


def _with_topic(bound: Bound, assigned: Assigned) -> Bound:
    """A bound in the short form with the topic's name added; raises if there are several topics."""
    if not bound.is_short:
        return bound
    if len(assigned) > 1:
        raise InvalidRequestError(
            f"{bound.option} names no topic, and {len(assigned)} are read "
            f"({', '.join(sorted(assigned)[:_SHOWN])}): put the partitions under their topic's "
            'name, or under "*" for every topic, such as {"*":{"*":-2}}'
        )
    return replace(bound, values=dict.fromkeys(assigned, bound.values[ANY_TOPIC]), is_short=False)


def _refuse(bound: Bound, banned: int, text: str, instead: str) -> None:
    if bound.is_time:
        return
    for topic, row in bound.values.items():
        for partition, value in row.items():
            if value == banned:
                is_all = topic == ANY_TOPIC and partition is None
                where = "" if is_all else f" for {_label(topic, partition)}"
                raise InvalidRequestError(
                    f"{text.format(where)}: set {bound.option} to {instead} or to an offset"
                )


def _check_same_partitions(start: Bound, end: Bound) -> None:
    is_comparable = start.is_short == end.is_short and start.names_all and end.names_all
    if is_comparable and set(start.entries()) != set(end.entries()):
        raise InvalidRequestError(
            "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET] "
            f"{start.option} names {_listed(start.entries())}, {end.option} names "
            f"{_listed(end.entries())}: name the same partitions in both, or give a '*' entry"
        )


def _check_order(start: Bound, end: Bound, pairs: Iterable[tuple[str, int | None]]) -> None:
    """Compare the bounds as given: offsets with offsets, times with times."""
    if start.is_time != end.is_time:
        return
    for topic, partition in pairs:
        if partition is None:
            continue
        first, last = start.at(topic, partition), end.at(topic, partition)
        if first is None or last is None or first <= last:
            continue
        if last == LATEST and not end.is_time:
            continue
        kind = "TIMESTAMP" if start.is_time else "OFFSET"
        show = _shown_time if start.is_time else str
        raise InvalidRequestError(
            f"[UNRESOLVED_START_{kind}_GREATER_THAN_END_{kind}] {_label(topic, partition)}: start "
            f"{show(first)} ({start.option}) is greater than end {show(last)} ({end.option}); "
            "lower the start or raise the end"
        )


def _check_resolved(start: Bound, end: Bound, name: str, first: int, last: int) -> None:
    if first > last:
        raise InvalidRequestError(
            f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {name}: resolved start {first} "
            f"({start.option}) is greater than resolved end {last} ({end.option}). Possible "
            "causes: the end time is before the start; the offsets belong to another topic, or to "
            "this one before it was recreated; retention removed everything up to the end"
        )


def _check_cover(bound: Bound, assigned: Assigned, side: str) -> None:
    everywhere_known = {(ANY_TOPIC, partition) for _, partition in _pairs(assigned)}
    known = {*_pairs(assigned), *everywhere_known, *((t, None) for t in (*assigned, ANY_TOPIC))}
    covers = all(bound.at(topic, number) is not None for topic, number in _pairs(assigned))
    if not covers or not known.issuperset(bound.entries()):
        raise InvalidRequestError(
            f"[{side}_OFFSET_DOES_NOT_MATCH_ASSIGNED] {bound.option} must name every partition "
            f"that is read and no other. Specified: {_listed(bound.entries())}. Assigned: "
            f"{_listed(_pairs(assigned))}. A '*' entry stands for partitions not named, such as "
            '{"topicA":{"0":23,"*":-2}}'
        )


def report_losses(losses: Sequence[str], fail: bool, advice: str) -> None:
    """Raise for records that are gone, or only warn."""
    if not losses:
        return
    more = f" (and {len(losses) - 1} more like it)" if len(losses) > 1 else ""
    what = f"[DATA_LOSS] {losses[0]}{more}"
    if fail:
        raise InvalidRequestError(
            f"{what}. {advice}, or set failOnDataLoss=false to read what is there"
        )
    warnings.warn(f"{what}; reading what is there, since failOnDataLoss=false", stacklevel=3)


def _pairs(assigned: Assigned) -> list[tuple[str, int]]:
    return [(topic, partition) for topic, row in assigned.items() for partition in row]


def _label(topic: str, partition: int | None) -> str:
    if topic == ANY_TOPIC and partition is not None:
        return f"partition {partition}"
    return f"{topic}-{'*' if partition is None else partition}"


def _listed(pairs: Iterable[tuple[str, int | None]]) -> str:
    labels = [_label(topic, partition) for topic, partition in pairs]
    more = f", … ({len(labels)} in all)" if len(labels) > _SHOWN else ""
    return f"[{', '.join(labels[:_SHOWN])}{more}]"


def _moment(time_us: int) -> int | datetime:
    """Milliseconds, or a datetime if the time is finer; only milliseconds can go beyond the year
    9999."""
    if time_us % 1000 == 0:
        return time_us // 1000
    return EPOCH + timedelta(microseconds=time_us)


def _shown_time(time_us: int) -> str:
    try:
        return f"{time_us // 1000} ({(EPOCH + timedelta(microseconds=time_us)).isoformat()})"
    except OverflowError:
        return f"{time_us // 1000} (beyond the year 9999; is it in milliseconds?)"
