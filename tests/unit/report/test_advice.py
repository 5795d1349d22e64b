"""What a user is advised to run: pure, from numbers."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import pylogtable
from pylogtable.format.config import DAY_MS, describe_config, parse_config
from pylogtable.report.advise import (
    ENOUGH_RECORDS,
    MANY_REPLACED,
    MANY_SMALL,
    Advice,
    advise,
    advise_failed,
)
from pylogtable.report.health import FailedTopic, GroupHealth, Growth, PartitionHealth, TopicHealth
from pylogtable.results.groups import GroupLag

BOTH = "compact,delete"
URL = "s3://bucket/my logs"


def part(number: int = 0, **more: object) -> PartitionHealth:
    made = PartitionHealth(
        partition=number,
        log_start=0,
        end=100,
        clean_end=0,
        segments=1,
        records=100,
        size_bytes=1000,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def make_topic(
    *parts: PartitionHealth, config: dict[str, str] | None = None, **more: object
) -> TopicHealth:
    made = TopicHealth(
        name="orders",
        version=1,
        committed_at_ms=0,
        now_ms=0,
        key=("key",),
        config=parse_config(config or {}),
        settings=describe_config(config or {}),
        partitions=parts or (part(),),
        strips={},
        times=(),
        sizes=(),
        growth=Growth(),
        groups=(),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def given(*args: object, **more: object) -> list[Advice]:
    return advise(make_topic(*args, **more), URL)  # type: ignore[arg-type]


def group(**more: object) -> tuple[GroupHealth, ...]:
    return (GroupHealth("billing", GroupLag("billing", "orders", {}), **more),)  # type: ignore[arg-type]


def test_a_topic_in_shape_is_left_alone() -> None:
    assert given() == []
    assert given(part(end=0, records=0, segments=0, size_bytes=0)) == []


def test_many_small_segments_are_to_be_merged() -> None:
    assert given(part(joinable=MANY_SMALL - 1)) == []
    half = MANY_SMALL // 2
    sealed = part(0, joinable=half, joinable_bytes=10)
    shifted = part(1, joinable=half, joinable_bytes=2**30 + 1, shifted=5)
    [advice] = given(sealed, shifted)
    assert shlex.split(advice.command) == ["pylogtable", "merge", "orders", "--store", URL]
    assert (
        advice.why
        == "32 segments are small or shifted (5 of them shifted) and would become about 3"
    )


def test_dirty_partitions_are_to_be_compacted() -> None:
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"}
    dirty = [part(n, dirty_ratio=0.1 * n, cleanable=n > 3) for n in range(6)]
    [advice] = given(*dirty, config=config)
    assert advice.command.startswith("pylogtable compact orders ")
    assert advice.why.startswith("partitions 4, 5: up to 50% dirty")
    assert "0.3" not in advice.why
    [advice] = given(part(dirty_ratio=0.1, cleanable=True), config=config)
    assert "max.compaction.lag.ms" in advice.why


def test_what_is_expired_is_to_be_let_go() -> None:
    [advice] = given(part(expired_segments=3, expired_records=30, expired_bytes=2048))
    assert advice.command.startswith("pylogtable retain orders ")
    assert advice.why == "3 segment(s) with 30 record(s), 2.0 KiB, are past retention"


def test_replaced_files_are_to_be_removed() -> None:
    assert given(growth=Growth(removable=MANY_REPLACED - 1, waiting=10**6)) == []
    [advice] = given(growth=Growth(removable=MANY_REPLACED))
    assert advice.command.startswith("pylogtable vacuum orders ")


def test_a_group_that_loses_records_comes_first() -> None:
    late = group(lost=7, expiring=9)
    expired = part(expired_segments=3, joinable=MANY_SMALL)
    advice = given(expired, groups=late)
    assert [entry.urgency for entry in advice] == ["now", "now", "soon", "soon"]
    assert "7 offset(s) before the log start" in advice[0].why
    assert "9 record(s) that group billing has not read" in advice[1].why
    assert advice[2].why.endswith("; what billing has not read is spared")
    assert shlex.split(advice[2].command)[1:5] == ["retain", "orders", "--protect-group", "billing"]
    describe = f"pylogtable groups describe billing --topic orders --store '{URL}'"
    assert advice[0].command == advice[1].command == describe


@pytest.mark.parametrize(
    ("left_ms", "warned"), [(None, False), (DAY_MS, True), (2 * DAY_MS, False), (0, True)]
)
def test_a_group_is_warned_before_it_loses_records(left_ms: int | None, warned: bool) -> None:
    advice = given(groups=group(left_ms=left_ms), config={"retention.ms": str(7 * DAY_MS)})
    assert bool(advice) == warned
    forever = given(groups=group(left_ms=left_ms), config={"retention.ms": "-1"})
    assert forever == []


def test_a_group_that_cannot_be_read_is_to_be_looked_at() -> None:
    [advice] = given(groups=(GroupHealth("g", error="no rights"),))
    assert advice.why == "group g cannot be read: no rights"
    assert advice.urgency == "look"
    [advice] = given(groups=(GroupHealth("", error="no rights"),))
    assert advice.why == "its groups cannot be read: no rights"


def test_a_topic_that_cannot_be_read_is_to_be_verified() -> None:
    [advice] = advise_failed(FailedTopic("orders", "it is broken"), URL)
    assert shlex.split(advice.command) == ["pylogtable", "verify", "orders", "--store", URL]
    assert (advice.why, advice.urgency) == ("it cannot be read: it is broken", "now")


def test_a_partition_with_far_more_than_its_share_is_named() -> None:
    even = [part(n, records=ENOUGH_RECORDS) for n in range(8)]
    assert given(*even) == []
    [advice] = given(part(8, records=20 * ENOUGH_RECORDS), *even)
    assert "partition 8 has 71% of all records" in advice.why
    [advice] = given(part(0, records=ENOUGH_RECORDS), part(1, records=4 * ENOUGH_RECORDS))
    assert "partition 1 has 80%" in advice.why
    assert given(part(0, records=1), part(1, records=50)) == []


def test_partitions_without_any_record_are_named() -> None:
    filled = [part(n, records=ENOUGH_RECORDS) for n in range(4)]
    empty = [part(n, records=0, end=0) for n in range(4, 14)]
    [advice] = given(*filled, *empty)
    assert advice.why.startswith("partitions 4, 5, 6, 7, 8, 9, 10, 11 and 2 more never had")
    read_out = part(4, records=0, end=100)
    assert given(*filled, read_out) == []


def test_the_command_line_understands_what_is_advised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = pytest.importorskip("pylogtable.cli.app").main
    topic = pylogtable.open(tmp_path).create_topic("orders", config={"cleanup.policy": BOTH})
    topic.group("billing").commit({0: 0})
    many = [part(n, records=ENOUGH_RECORDS) for n in range(8)]
    ill = make_topic(
        part(8, records=9**9, joinable=99, expired_segments=1, cleanable=True),
        part(9, records=0, end=0),
        *many,
        config={"cleanup.policy": BOTH},
        growth=Growth(removable=99),
        groups=(*group(lost=1, expiring=1), GroupHealth("g", error="no")),
    )
    url = str(tmp_path)
    everything = [*advise(ill, url), *advise_failed(FailedTopic("orders", "broken"), url)]
    verbs = {shlex.split(advice.command)[1] for advice in everything}
    assert verbs == {"groups", "retain", "compact", "merge", "vacuum", "offsets", "verify"}
    for command in dict.fromkeys(advice.command for advice in everything):
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
