"""Resolves the start and end of a read to offsets, by Kafka's rules.

A start is inclusive, an end is exclusive. If Spark's Kafka connector has an error condition for a
mistake, the message begins with it in brackets, because Spark shows only the text of a Python
exception.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pylogtable import InvalidRequestError
from pylogtable.engine import EARLIEST, LATEST, Position, PositionLog, locate
from pyspark_pylogtable.request.bounds import ANY_TOPIC, Bound, everywhere
from pyspark_pylogtable.request.options import Options

Ranges = dict[str, dict[int, tuple[int, int]]]
Assigned = Mapping[str, Sequence[int]]

_FROM_EARLIEST = everywhere("startingOffsets", EARLIEST)
_FROM_LATEST = everywhere("startingOffsets", LATEST)
_TO_LATEST = everywhere("endingOffsets", LATEST)
_SHOWN = 20


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


def resolve_batch(options: Options, views: Mapping[str, PositionLog], assigned: Assigned) -> Ranges:
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
        must_match = options.starting_strategy == "error"
        starts = _resolve(start, topic, views[topic], partitions, losses, must_match=must_match)
        ends = _resolve(end, topic, views[topic], partitions, losses, must_match=False)
        ranges[topic] = {p: (starts[p], ends[p]) for p in partitions}
    report_losses(losses, options.fail_on_data_loss, "Change the offset")
    for topic, partition in _pairs(assigned):
        _check_resolved(start, end, f"{topic}-{partition}", *ranges[topic][partition])
    return ranges


def resolve_start(
    options: Options, views: Mapping[str, PositionLog], assigned: Assigned
) -> dict[str, dict[int, int]]:
    """Where a new stream starts in every assigned partition: at latest by default."""
    if not assigned:
        return {}
    start = _with_topic(options.starting or _FROM_LATEST, assigned)
    _check_cover(start, assigned, "START")
    losses: list[str] = []
    must_match = options.starting_strategy == "error"
    starts = {
        topic: _resolve(start, topic, views[topic], partitions, losses, must_match=must_match)
        for topic, partitions in assigned.items()
    }
    report_losses(losses, options.fail_on_data_loss, "Change the offset")
    return starts


def _resolve(
    bound: Bound,
    topic: str,
    view: PositionLog,
    partitions: Sequence[int],
    losses: list[str],
    *,
    must_match: bool,
) -> dict[int, int]:
    """An offset for each partition of a topic; adds offsets that are gone to `losses`. A time after
    the last record gives the end of the partition, or an error with `must_match`."""
    wanted = {p: given for p in partitions if (given := bound.at(topic, p)) is not None}
    found = locate(view, wanted)
    for partition, at in found.items():
        asks = f"{bound.option} asks for offset {at.asked} of {topic}-{partition}"
        if at.asked is None and must_match:
            raise InvalidRequestError(
                f"No offset matched from request of topic-partition {topic}-{partition} and "
                f"timestamp {wanted[partition]} ({bound.option}): it has no record that late; its "
                f"end offset is {at.end}. Ask for an earlier time, or set "
                "startingOffsetsByTimestampStrategy=latest to start such partitions at their end"
            )
        if at.asked is not None and at.asked < at.log_start:
            why = "older records were removed"
            losses.append(f"{asks}, whose log starts at {at.log_start}: {why}")
        elif at.asked is not None and at.asked > at.end:
            why = "the topic was recreated, or an older version is read"
            losses.append(f"{asks}, whose log ends at {at.end}: {why}")
    return {partition: at.nearest for partition, at in found.items()}


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


def _refuse(bound: Bound, banned: Position, text: str, instead: str) -> None:
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
    for topic, partition in pairs:
        first, last = (
            None if partition is None else bound.at(topic, partition) for bound in (start, end)
        )
        if first is None or last is None or first.kind != last.kind or first.value <= last.value:
            continue
        if first.kind in ("offset", "time"):
            kind = "TIMESTAMP" if first.kind == "time" else "OFFSET"
            raise InvalidRequestError(
                f"[UNRESOLVED_START_{kind}_GREATER_THAN_END_{kind}] {_label(topic, partition)}: "
                f"start {first} ({start.option}) is greater than end {last} ({end.option}); lower "
                "the start or raise the end"
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
