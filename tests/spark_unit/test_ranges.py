"""From options to offset ranges of a batch read, on views that are plain data.

The numbered cases are those of Spark's own Kafka suites (KafkaRelationSuite), as listed in the
design's reference. Setup A: p0 holds offsets 0 to 9, p1 as many, p2 one.
"""

from __future__ import annotations

import json
import warnings
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogtable import InvalidRequestError
from pyspark_pylogtable.request.parsing import parse_options
from pyspark_pylogtable.request.ranges import check_batch, resolve_batch


@dataclass
class FakeView:
    """For each partition its log start and the times of its records in milliseconds."""

    logs: dict[int, tuple[int, list[int]]]

    @staticmethod
    def clock() -> int:
        return 2000

    def ranges(self, partition: Sequence[int]) -> dict[int, tuple[int, int]]:
        logs = {p: self.logs[p] for p in partition}
        return {p: (start, start + len(times)) for p, (start, times) in logs.items()}

    def offsets_for_time(
        self, when: int | datetime, partitions: Sequence[int] | None = None
    ) -> dict[int, int | None]:
        wanted = when.timestamp() * 1000 if isinstance(when, datetime) else when
        found: dict[int, int | None] = {}
        for p in self.logs if partitions is None else partitions:
            start, times = self.logs[p]
            at = bisect_left(times, wanted)
            found[p] = start + at if at < len(times) else None
        return found


TIMES = [1000 + 10 * n for n in range(10)]
SETUP_A = FakeView({0: (0, TIMES), 1: (0, TIMES), 2: (0, [1000])})
WHOLE = {0: (0, 10), 1: (0, 10), 2: (0, 1)}
REMOVED = FakeView({0: (10, TIMES)})


def resolve(
    view: FakeView = SETUP_A,
    assigned: Mapping[str, Sequence[int]] | None = None,
    **options: object,
) -> dict[int, tuple[int, int]]:
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
    chosen = {"t": sorted(view.logs)} if assigned is None else assigned
    ranges = resolve_batch(parse_options(texts), {"t": view}, chosen)
    assert list(ranges) == ["t"]
    return ranges["t"]


def refusal(
    view: FakeView = SETUP_A,
    assigned: Mapping[str, Sequence[int]] | None = None,
    **options: object,
) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        resolve(view, assigned, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, WHOLE),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, WHOLE),
        ({"startingOffsets": {"t": {"0": -2, "1": -2, "2": 0}}}, WHOLE),
        ({"startingOffsets": {"0": 3, "*": -2}}, {**WHOLE, 0: (3, 10)}),
        ({"startingOffsets": {"t": {"0": 3, "*": "earliest"}}}, {**WHOLE, 0: (3, 10)}),
        ({"startingOffsets": {"*": {"*": -2}}}, WHOLE),
        ({"startingOffsets": {"*": {"0": 3, "*": -2}}}, {**WHOLE, 0: (3, 10)}),
        ({"endingOffsets": {"0": 0, "*": -1}}, {**WHOLE, 0: (0, 0)}),
        ({"startingOffsets": {"0": 10, "*": -2}}, {**WHOLE, 0: (10, 10)}),
        (
            {"startingOffsets": {"0": 2, "1": 3, "2": 0}, "endingOffsets": {"t": {"*": -1}}},
            {0: (2, 10), 1: (3, 10), 2: (0, 1)},
        ),
        (
            {"startingTimestamp": "1030", "startingOffsetsByTimestampStrategy": "latest"},
            {0: (3, 10), 1: (3, 10), 2: (1, 1)},
        ),
        (
            {"startingOffsets": {"t": {"0": 1, "1": 1, "2": 1}}, "endingOffsets": {"0": 2, "*": 1}},
            {0: (1, 2), 1: (1, 1), 2: (1, 1)},
        ),
        (
            {
                "startingOffsets": {"t": {"0": 1, "1": 1, "2": 1}},
                "endingOffsets": {"0": 2, "1": 2, "2": 1},
            },
            {0: (1, 2), 1: (1, 2), 2: (1, 1)},
        ),
        (
            {
                "startingOffsets": {"t": {"0": 1, "1": 1, "2": 1}},
                "endingOffsets": {"*": {"0": 2, "1": 2, "2": 1}},
            },
            {0: (1, 2), 1: (1, 2), 2: (1, 1)},
        ),
        ({"startingTimestamp": "1969-12-31T23:59:59.999999Z"}, WHOLE),
        ({"endingTimestamp": "1969-12-31T23:59:59.999998Z"}, dict.fromkeys(WHOLE, (0, 0))),
        ({"endingTimestamp": "1030"}, {0: (0, 3), 1: (0, 3), 2: (0, 1)}),
        ({"startingTimestamp": "1970-01-01T00:00:01Z"}, WHOLE),
        (
            {"endingTimestamp": "1970-01-01T00:00:01.030001Z"},
            {0: (0, 4), 1: (0, 4), 2: (0, 1)},
        ),
        (
            {"startingOffsetsByTimestamp": {"0": 1030, "1": 1085, "2": 0}},
            {0: (3, 10), 1: (9, 10), 2: (0, 1)},
        ),
        (
            {"startingTimestamp": "1s", "endingTimestamp": "970ms"},
            {0: (0, 3), 1: (0, 3), 2: (0, 1)},
        ),
        ({"startingTimestamp": "1000", "endingTimestamp": "1000"}, dict.fromkeys(WHOLE, (0, 0))),
    ],
)
def test_ranges(options: dict[str, object], expected: object) -> None:
    assert resolve(**options) == expected


def test_case_3_earliest_and_latest_follow_a_growing_topic() -> None:
    options = {
        "startingOffsets": {"t": {"0": -2, "1": -2, "2": 0}},
        "endingOffsets": {"t": {"0": -1, "1": -1, "2": 1}},
    }
    assert resolve(SETUP_A, **options) == WHOLE
    grown = FakeView({0: (0, TIMES), 1: (0, TIMES * 2), 2: (0, [1000] * 10)})
    assert resolve(grown, **options) == {0: (0, 10), 1: (0, 20), 2: (0, 1)}


def test_case_7_a_start_by_time_with_an_end_by_offset() -> None:
    found = resolve(startingTimestamp="1000", endingOffsets={"t": {"0": -1, "1": -1, "2": 1}})
    assert found == {0: (0, 10), 1: (0, 10), 2: (0, 1)}


def test_case_8_an_end_time_after_all_records_is_latest() -> None:
    found = resolve(endingOffsetsByTimestamp={"t": {"0": 1050, "1": 1050, "2": 9999}})
    assert found == {0: (0, 5), 1: (0, 5), 2: (0, 1)}
    assert resolve(endingTimestamp=str(2**63 - 1)) == WHOLE


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingTimestamp", "1050"),
        ("startingOffsetsByTimestamp", {"t": {"0": 1050, "1": 1050, "2": 1050}}),
    ],
)
def test_case_9_a_start_time_after_all_records(option: str, value: object) -> None:
    message = refusal(**{option: value})
    assert message.startswith(
        "No offset matched from request of topic-partition t-2 and timestamp 1050 "
        f"(1970-01-01T00:00:01.050000+00:00) ({option})"
    )
    assert "end offset is 1." in message
    assert "startingOffsetsByTimestampStrategy=latest" in message
    found = resolve(**{option: value, "startingOffsetsByTimestampStrategy": "latest"})
    assert found == {0: (5, 10), 1: (5, 10), 2: (1, 1)}


def test_case_10_one_time_wins_then_times_then_offsets() -> None:
    forms: dict[str, object] = {
        "startingOffsets": {"0": 7, "*": 0},
        "startingOffsetsByTimestamp": {"0": 1020, "*": 1000},
        "startingTimestamp": "1000",
    }
    assert resolve(**forms) == WHOLE
    del forms["startingTimestamp"]
    assert resolve(**forms) == {**WHOLE, 0: (2, 10)}
    del forms["startingOffsetsByTimestamp"]
    assert resolve(**forms) == {**WHOLE, 0: (7, 10)}


MISMATCHED = "[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET]"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({"t": {"0": 0, "1": 0, "2": 0}}, {"t": {"0": 1, "1": 1}}),
        ({"0": 0, "1": 0, "2": 0}, {"0": 1, "1": 1}),
        ({"t": {"0": 0, "1": 0, "2": 0}}, {"0": 1, "1": 1}),
        ({"t": {"0": 0}}, {"u": {"0": 1}}),
    ],
)
def test_case_15_start_and_end_that_name_different_partitions_are_refused(
    start: object, end: object
) -> None:
    message = refusal(startingOffsets=start, endingOffsets=end)
    assert message.startswith(f"{MISMATCHED} startingOffsets names [")
    assert "'*' entry" in message
    times = refusal(startingOffsets=start, endingOffsetsByTimestamp=end)
    assert times.startswith(MISMATCHED)


@pytest.mark.parametrize(
    ("start", "end", "name"),
    [
        ({"t": {"0": 1, "*": -2}}, {"t": {"0": 0, "*": -1}}, "t-0"),
        ({"t": {"*": 1}}, {"t": {"0": 0, "*": -1}}, "t-0"),
        ({"0": 1, "*": -2}, {"0": 0, "*": -1}, "partition 0"),
        ({"0": 1, "*": -2}, {"t": {"0": 0, "*": -1}}, "t-0"),
        ({"*": {"*": 1}}, {"*": {"*": 0}}, "t-0"),
    ],
)
def test_case_16_start_after_end_as_given_is_refused(start: object, end: object, name: str) -> None:
    message = refusal(startingOffsets=start, endingOffsets=end)
    assert message.startswith(
        f"[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {name}: start 1 (startingOffsets) is "
        "greater than end 0 (endingOffsets)"
    )


def test_start_time_after_end_time_is_refused() -> None:
    message = refusal(startingTimestamp="1050", endingTimestamp="1040")
    assert message.startswith(
        "[UNRESOLVED_START_TIMESTAMP_GREATER_THAN_END_TIMESTAMP] t-0: start 1050"
    )
    assert "end 1040 (1970-01-01T00:00:01.040000+00:00) (endingTimestamp)" in message


def test_case_17_start_after_end_as_resolved_is_refused() -> None:
    message = refusal(startingOffsets={"0": 3, "*": -2}, endingTimestamp="1010")
    assert message.startswith(
        "[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] t-0: resolved start 3 (startingOffsets) "
        "is greater than resolved end 1 (endingTimestamp). Possible causes:"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        (
            {"startingOffsets": '{"*":{"*":-1}}'},
            "starting offset can't be latest for batch queries",
        ),
        (
            {"startingOffsets": '{"t":{"0":-1,"1":0}}'},
            "starting offset for t-0 can't be latest for batch queries: set startingOffsets to "
            "earliest or to an offset",
        ),
        ({"startingOffsets": '{"t":{"*":"latest"}}'}, "starting offset for t-* can't be latest"),
        ({"startingOffsets": '{"2":-1}'}, "starting offset for partition 2 can't be latest"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"endingOffsets": '{"t":{"1":-2}}'}, "ending offset for t-1 can't be earliest"),
        ({"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":2}}'}, MISMATCHED),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":3}}'},
            "[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] t-0",
        ),
    ],
)
def test_bounds_are_checked_before_any_topic_is_opened(
    options: dict[str, str], message: str
) -> None:
    for check in (check_batch, lambda parsed: resolve_batch(parsed, {}, {})):
        with pytest.raises(InvalidRequestError) as caught:
            check(parse_options(options))
        assert str(caught.value).startswith(message)


def test_an_overridden_start_may_be_latest() -> None:
    assert resolve(startingOffsets="latest", startingTimestamp="1000") == WHOLE


@pytest.mark.parametrize(
    ("value", "specified"),
    [
        ({"t": {"0": 1, "1": 1}}, "[t-0, t-1]"),
        ({"0": 1, "1": 1}, "[t-0, t-1]"),
        ({"t": {"0": 1, "1": 1, "2": 1, "7": 1}}, "[t-0, t-1, t-2, t-7]"),
        ({"t": {"7": 1, "*": 0}}, "[t-7, t-*]"),
        ({"*": {"7": 1, "*": 0}}, "[partition 7, *-*]"),
        ({"t": {"*": 0}, "u": {"*": 0}}, "[t-*, u-*]"),
        ({}, "[]"),
    ],
)
@pytest.mark.parametrize(
    ("option", "side"),
    [
        ("startingOffsets", "START"),
        ("startingOffsetsByTimestamp", "START"),
        ("endingOffsets", "END"),
        ("endingOffsetsByTimestamp", "END"),
    ],
)
def test_bounds_must_cover_exactly_the_assigned_partitions(
    option: str, side: str, value: object, specified: str
) -> None:
    message = refusal(**{option: value})
    assert message.startswith(f"[{side}_OFFSET_DOES_NOT_MATCH_ASSIGNED] {option} ")
    assert f"Specified: {specified}. Assigned: [t-0, t-1, t-2]. A '*' entry" in message


def test_long_lists_of_partitions_are_cut() -> None:
    view = FakeView({p: (0, []) for p in range(5000)})
    message = refusal(view, startingOffsets={"0": 0})
    assert "t-19, … (5000 in all)]" in message
    assert len(message) < 600


def test_only_assigned_partitions_are_read() -> None:
    assert resolve(assigned={"t": [2, 0]}) == {2: (0, 1), 0: (0, 10)}
    assert resolve(assigned={"t": [1]}, startingOffsets={"t": {"1": 4}}) == {1: (4, 10)}


def test_several_topics() -> None:
    views = {"a": SETUP_A, "b": FakeView({0: (5, [1, 2, 3])})}
    assigned = {"a": [0, 1, 2], "b": [0]}
    options = parse_options({"startingOffsets": '{"a":{"0":4,"*":-2},"*":{"*":-2}}'})
    expected = {"a": {**WHOLE, 0: (4, 10)}, "b": {0: (5, 8)}}
    assert resolve_batch(options, views, assigned) == expected
    with pytest.raises(InvalidRequestError, match=r"names no topic, and 2 are read \(a, b\)"):
        resolve_batch(parse_options({"startingOffsets": '{"*":-2}'}), views, assigned)
    with pytest.raises(InvalidRequestError, match=r"Specified: \[a-\*\]. Assigned: .*b-0"):
        resolve_batch(parse_options({"startingOffsets": '{"a":{"*":-2}}'}), views, assigned)


def test_no_topic_gives_no_range() -> None:
    assert resolve_batch(parse_options({"startingOffsets": '{"t":{"0":1}}'}), {}, {}) == {}


@pytest.mark.parametrize(
    ("options", "asked", "clamped"),
    [
        ({"startingOffsets": {"0": 3}}, "offset 3 of t-0, whose log starts at 10", (10, 20)),
        ({"startingOffsets": {"0": 25}}, "offset 25 of t-0, whose log ends at 20", (20, 20)),
        ({"endingOffsets": {"0": 25}}, "offset 25 of t-0, whose log ends at 20", (10, 20)),
        ({"endingOffsets": {"0": 5}}, "offset 5 of t-0, whose log starts at 10", (10, 10)),
        (
            {"startingOffsets": {"0": 3}, "endingOffsets": {"0": 5}},
            "offset 3 of t-0, whose log starts at 10: older records were removed "
            "(and 1 more like it)",
            (10, 10),
        ),
    ],
)
def test_offsets_that_are_gone_are_an_error_or_a_warning(
    options: dict[str, object], asked: str, clamped: tuple[int, int]
) -> None:
    begins = f"[DATA_LOSS] {next(iter(options))} asks for {asked}"
    message = refusal(REMOVED, **options)
    assert message.startswith(begins)
    assert "failOnDataLoss=false" in message
    with pytest.warns(UserWarning, match="failOnDataLoss=false") as warned:
        found = resolve(REMOVED, **options, failOnDataLoss="false")
    assert found == {0: clamped}
    assert [str(w.message).startswith(begins) for w in warned] == [True]
    assert warned[0].filename == __file__


def test_earliest_is_no_loss_after_retention() -> None:
    """The start and the end of the log are valid offsets."""
    assert resolve(REMOVED) == {0: (10, 20)}
    assert resolve(REMOVED, startingOffsets={"0": 10}, endingOffsets={"0": 20}) == {0: (10, 20)}


logs = st.dictionaries(
    st.integers(0, 3),
    st.tuples(st.integers(0, 9), st.lists(st.integers(0, 20), max_size=8).map(sorted)),
    min_size=1,
)
starts = st.one_of(
    st.just({}),
    st.integers(-2, 25).map(lambda n: {"startingOffsets": json.dumps({"*": n})}),
    st.integers(0, 25).map(lambda n: {"startingTimestamp": str(n)}),
)
ends = st.one_of(
    st.just({}),
    st.integers(-2, 25).map(lambda n: {"endingOffsets": json.dumps({"*": n})}),
    st.integers(0, 25).map(lambda n: {"endingTimestamp": str(n)}),
)


@given(logs, starts, ends, st.sampled_from(["true", "false"]), st.sampled_from(["error", "latest"]))
def test_resolved_ranges_lie_within_the_log(
    log: dict[int, tuple[int, list[int]]],
    start: dict[str, str],
    end: dict[str, str],
    fail: str,
    strategy: str,
) -> None:
    """With failOnDataLoss=false a loss is never the reason for an error."""
    view = FakeView(log)
    texts = {"failOnDataLoss": fail, "startingOffsetsByTimestampStrategy": strategy, **start, **end}
    ranges, refused = {}, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if fail == "false" else "error")
        try:
            ranges = resolve_batch(parse_options(texts), {"t": view}, {"t": sorted(log)})
        except InvalidRequestError as error:
            refused = str(error)
    assert refused or set(ranges["t"]) == set(log)
    assert fail == "true" or not refused.startswith("[DATA_LOSS]")
    for p, (low, high) in ranges.get("t", {}).items():
        start, end = view.ranges([p])[p]
        assert start <= low <= high <= end
