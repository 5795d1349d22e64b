"""Which commands the report advises, given the numbers of a topic."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import pylogtable
from pylogtable.format.config import DAY_MS, describe_config, parse_config
from pylogtable.groups.report import GroupLag, Lag
from pylogtable.limits import DEFAULT_LIMITS
from pylogtable.read.description import PublishedStatus
from pylogtable.report.advice import (
    LATE_TABLE_MS,
    MANY_MERGEABLE,
    MANY_REMOVABLE,
    SKEW_MIN_RECORDS,
    Advice,
    advise,
    advise_unreadable,
)
from pylogtable.report.health import (
    GroupHealth,
    Growth,
    PartitionHealth,
    TopicHealth,
    UnreadableTopic,
)

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
        bins_by_offset={},
        bins_by_time=(),
        bins_by_size=(),
        growth=Growth(),
        groups=(),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def given(*args: object, **more: object) -> list[Advice]:
    return advise(make_topic(*args, **more), URL)  # type: ignore[arg-type]


def group(**more: object) -> tuple[GroupHealth, ...]:
    return (GroupHealth("billing", GroupLag("billing", "orders", {}), **more),)  # type: ignore[arg-type]


def test_healthy_topic_gets_no_advice() -> None:
    assert given() == []
    assert given(part(end=0, records=0, segments=0, size_bytes=0)) == []


def test_many_small_segments_give_advice_to_merge() -> None:
    assert given(part(mergeable_segments=MANY_MERGEABLE - 1)) == []
    half = MANY_MERGEABLE // 2
    sealed = part(0, mergeable_segments=half, mergeable_bytes=10)
    shifted = part(1, mergeable_segments=half, mergeable_bytes=2**30 + 1, shifted_segments=5)
    [advice] = given(sealed, shifted)
    assert shlex.split(advice.command) == ["pylogtable", "merge", "orders", "--store", URL]
    assert advice.why == "32 small or shifted segments (5 of them shifted) would become about 3"


def test_mostly_shifted_segments_give_advice_to_merge() -> None:
    assert given(part(segments=1, mergeable_segments=1, shifted_segments=1)) == []
    assert given(part(segments=7, mergeable_segments=3, shifted_segments=3)) == []
    [advice] = given(part(segments=6, mergeable_segments=3, shifted_segments=3))
    assert shlex.split(advice.command) == ["pylogtable", "merge", "orders", "--store", URL]
    assert advice.why.startswith("3 of 6 segments are shifted, as appends of several tasks")


def test_late_and_missing_tables_give_advice_to_publish() -> None:
    config = {"publish.formats": "delta"}
    late = PublishedStatus("delta", 1, 0, lag_records=5, lag_ms=LATE_TABLE_MS)
    assert given(config=config, published=(late,)) == []
    [advice] = given(config=config, published=(replace(late, lag_ms=LATE_TABLE_MS + 1),))
    assert shlex.split(advice.command) == ["pylogtable", "publish", "orders", "--store", URL]
    assert advice.why == "the delta table is 1 d behind"
    [advice] = given(config=config)
    assert advice.why == "publish.formats asks for a delta table, and there is none"


def test_table_with_records_that_maintain_does_not_compact_gives_advice() -> None:
    config = {"publish.formats": "delta", "cleanup.policy": "compact"}
    table = PublishedStatus("delta", 1, 0, lag_records=0, lag_ms=0)
    below = part(records_not_compacted=8000, dirty_ratio=0.28)
    [advice] = given(below, config=config, published=(table,))
    setting = ["--config", "min.cleanable.dirty.ratio=0"]
    words = ["pylogtable", "topics", "alter", "orders", *setting, "--store", URL]
    assert shlex.split(advice.command) == words
    assert advice.why.startswith("published tables show 8,000 records above the last compaction")
    assert "more than 50% dirty" in advice.why
    assert given(part(dirty_ratio=0.0), config=config, published=(table,)) == []
    assert given(below, config={"cleanup.policy": "compact"}) == []  # no table
    eager = {**config, "min.cleanable.dirty.ratio": "0"}
    assert given(below, config=eager, published=(table,)) == []
    [advice] = given(replace(below, cleanable=True), config=config, published=(table,))
    assert advice.command.startswith("pylogtable compact orders ")


def test_dirty_partitions_give_advice_to_compact() -> None:
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"}
    dirty = [part(n, dirty_ratio=0.1 * n, cleanable=n > 3) for n in range(6)]
    [advice] = given(*dirty, config=config)
    assert advice.command.startswith("pylogtable compact orders ")
    assert advice.why.startswith("partitions 4, 5: up to 50% dirty")
    assert "0.3" not in advice.why
    [advice] = given(part(dirty_ratio=0.1, cleanable=True), config=config)
    assert "max.compaction.lag.ms" in advice.why


def test_expired_segments_give_advice_to_run_retention() -> None:
    [advice] = given(part(expired_segments=3, expired_records=30, expired_bytes=2048))
    assert advice.command.startswith("pylogtable retain orders ")
    assert advice.why == "3 segments with 30 records (2.0 KiB) are past retention"


def test_many_replaced_files_give_advice_to_vacuum() -> None:
    assert given(growth=Growth(removable_files=MANY_REMOVABLE - 1, waiting_files=10**6)) == []
    [advice] = given(growth=Growth(removable_files=MANY_REMOVABLE))
    assert advice.command.startswith("pylogtable vacuum orders ")


def test_groups_that_lose_records_come_first() -> None:
    late = group(lost_offsets=7, expiring_records=9)
    expired = part(expired_segments=3, mergeable_segments=MANY_MERGEABLE)
    advice = given(expired, groups=late)
    assert [entry.urgency for entry in advice] == ["now", "now", "soon", "soon"]
    assert "7 offsets behind the log start" in advice[0].why
    assert "9 records that group billing has not read" in advice[1].why
    assert advice[2].why.endswith("; records that billing has not read are kept")
    assert shlex.split(advice[2].command)[1:5] == ["retain", "orders", "--protect-group", "billing"]
    describe = f"pylogtable groups describe billing --topic orders --store '{URL}'"
    assert advice[0].command == advice[1].command == describe


@pytest.mark.parametrize(
    ("left_ms", "warned"), [(None, False), (DAY_MS, True), (2 * DAY_MS, False), (0, True)]
)
def test_late_group_is_reported_before_it_loses_records(left_ms: int | None, warned: bool) -> None:
    advice = given(groups=group(ms_until_loss=left_ms), config={"retention.ms": str(7 * DAY_MS)})
    assert bool(advice) == warned
    forever = given(groups=group(ms_until_loss=left_ms), config={"retention.ms": "-1"})
    assert forever == []


def test_group_without_a_position_is_reported() -> None:
    lag = GroupLag("g", "orders", {0: Lag(None, 9, 8), 1: Lag(None, 4, 4), 2: Lag(5, 5)})
    [advice] = given(groups=(GroupHealth("g", lag),))
    assert advice.why == (
        "group g has no committed position in 2 partitions, and the 12 records there count as "
        "unread"
    )
    assert advice.urgency == "look"
    empty = GroupLag("g", "orders", {0: Lag(None, 0)})
    assert given(groups=(GroupHealth("g", empty),)) == []


def test_unreadable_group_is_reported() -> None:
    [advice] = given(groups=(GroupHealth("g", error="no rights"),))
    assert advice.why == "group g cannot be read: no rights"
    assert advice.urgency == "look"
    [advice] = given(groups=(GroupHealth("", error="no rights"),))
    assert advice.why == "the topic's groups cannot be read: no rights"


def test_unreadable_topic_gives_advice_to_verify() -> None:
    [advice] = advise_unreadable(UnreadableTopic("orders", "it is broken"), URL)
    assert shlex.split(advice.command) == ["pylogtable", "verify", "orders", "--store", URL]
    assert (advice.why, advice.urgency) == ("the topic cannot be read: it is broken", "now")


def test_skewed_partition_is_named() -> None:
    even = [part(n, records=SKEW_MIN_RECORDS) for n in range(8)]
    assert given(*even) == []
    [advice] = given(part(8, records=20 * SKEW_MIN_RECORDS), *even)
    assert "partition 8 has 71% of all records" in advice.why
    [advice] = given(part(0, records=SKEW_MIN_RECORDS), part(1, records=4 * SKEW_MIN_RECORDS))
    assert "partition 1 has 80%" in advice.why
    assert given(part(0, records=1), part(1, records=50)) == []


def test_partitions_that_never_had_a_record_are_named() -> None:
    filled = [part(n, records=SKEW_MIN_RECORDS) for n in range(4)]
    empty = [part(n, records=0, end=0) for n in range(4, 14)]
    [advice] = given(*filled, *empty)
    assert advice.why.startswith("partitions 4, 5, 6, 7, 8, 9, 10, 11 and 2 more never had")
    emptied = part(4, records=0, end=100)
    assert given(*filled, emptied) == []


def test_every_advised_command_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = pytest.importorskip("pylogtable.cli.app").main
    topic = pylogtable.open(tmp_path).create_topic("orders", config={"cleanup.policy": BOTH})
    topic.group("billing").commit({0: 0})
    many = [part(n, records=SKEW_MIN_RECORDS, records_not_compacted=9) for n in range(8)]
    unhealthy = make_topic(
        part(8, records=9**9, mergeable_segments=99, expired_segments=1, cleanable=True),
        part(9, records=0, end=0),
        *many,
        config={"cleanup.policy": BOTH, "publish.formats": "delta"},
        published=(PublishedStatus("delta", 1, 0, lag_records=0, lag_ms=LATE_TABLE_MS + 1),),
        growth=Growth(removable_files=99),
        groups=(*group(lost_offsets=1, expiring_records=1), GroupHealth("g", error="no")),
    )
    url = str(tmp_path)
    everything = [
        *advise(unhealthy, url),
        *advise_unreadable(UnreadableTopic("orders", "broken"), url),
    ]
    verbs = {shlex.split(advice.command)[1] for advice in everything}
    jobs = {"retain", "compact", "merge", "publish", "vacuum"}
    assert verbs == {*jobs, "groups", "topics", "offsets", "verify"}
    for command in dict.fromkeys(advice.command for advice in everything):
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err


def test_records_in_commits_are_no_small_files() -> None:
    most = DEFAULT_LIMITS.worth_segments - 1
    few = {"segments": most, "inline_segments": most}
    few |= {"mergeable_segments": most, "inline_records": 500}
    assert given(part(**few)) == []
    beside = part(**{**few, "mergeable_segments": most + MANY_MERGEABLE})
    [advice] = given(beside)
    assert advice.why.startswith(f"{MANY_MERGEABLE} small or shifted segments would become")


def test_records_in_commits_that_are_worth_files_give_advice_to_merge() -> None:
    many = part(inline_segments=DEFAULT_LIMITS.worth_segments, inline_records=700)
    [advice] = given(many)
    assert shlex.split(advice.command) == ["pylogtable", "merge", "orders", "--store", URL]
    assert advice.why == "700 records in 256 segments are in commits, and are worth files by now"
    assert given(part(inline_segments=9, inline_bytes=DEFAULT_LIMITS.worth_bytes - 1)) == []
    [advice] = given(part(inline_segments=9, inline_bytes=DEFAULT_LIMITS.worth_bytes))
    assert "worth files" in advice.why
