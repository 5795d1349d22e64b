"""Which jobs are due, and when a topic is looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pylogtable import Store
from pylogtable.run.due_plan import (
    CHECK_MS,
    COMPACTION_MS,
    FIRST_VACUUM_MS,
    GROUP_EXPIRY_MS,
    GROUPS_MS,
    LEAST_LOOK_MS,
    LONGEST_WAIT_MS,
    MERGE_MS,
    MERGE_SEGMENTS,
    MINUTE_MS,
    QUIET_COMPACTION_MS,
    QUIET_LOOK_MS,
    QUIET_VACUUM_MS,
    REST,
    REST_AFTER_WORK,
    RETENTION_MS,
    VACUUM_MS,
    Failing,
    LastRun,
    Seen,
    due_jobs,
    look_after_ms,
)
from tests.builders import T0

LOOK_MS = 500
#: A run that has seen version 5, a long time ago.
OLD = LastRun(version=5, ended_ms=T0, took_ms=0)


def seen(store: Store, version: int = 5, **config: Any) -> Seen:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    topic = store.create_topic(f"t{len(store.topics())}", config=settings)
    topic.append(pa.table({"key": ["a"], "value": ["b"]}))
    return Seen(replace(topic._log.known, version=version), T0, T0, T0)


def is_due(job: str, at: Seen, last: LastRun | None, now_ms: int) -> bool:
    return due_jobs(at, {} if last is None else {job: last}, [job], LOOK_MS, now_ms) == [job]


def first_due(job: str, at: Seen, last: LastRun | None) -> int | None:
    """After how many milliseconds the job is due; None if not within a week."""
    low, high = 0, 7 * 24 * 60 * MINUTE_MS
    if not is_due(job, at, last, T0 + high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_due(job, at, last, T0 + middle) else (middle + 1, high)
    return low


def test_new_process_does_all_but_vacuum_at_once(store: Store) -> None:
    at = seen(store)
    for job in ("retention", "compaction", "merge", "publication", "group_expiry", "mirror"):
        assert first_due(job, at, None) == 0
    assert first_due("vacuum", at, None) == FIRST_VACUUM_MS


def test_jobs_come_in_the_order_that_they_were_asked_for(store: Store) -> None:
    wanted = ["retention", "compaction", "merge", "publication"]
    assert due_jobs(seen(store), {}, wanted, LOOK_MS, T0) == wanted


NEWS, QUIET = 6, 5


@pytest.mark.parametrize(
    ("job", "version", "expected"),
    [
        ("retention", QUIET, RETENTION_MS),
        ("retention", NEWS, RETENTION_MS),
        ("compaction", NEWS, COMPACTION_MS),
        ("compaction", QUIET, QUIET_COMPACTION_MS),
        ("merge", NEWS, MERGE_MS),
        ("merge", QUIET, None),
        ("vacuum", NEWS, VACUUM_MS),
        ("vacuum", QUIET, QUIET_VACUUM_MS),
        ("group_expiry", QUIET, GROUP_EXPIRY_MS),
        ("publication", QUIET, None),
        ("mirror", NEWS, 0),
        ("mirror", QUIET, CHECK_MS),
    ],
)
def test_when_a_job_is_due_again(
    store: Store, job: str, version: int, expected: int | None
) -> None:
    # One segment was there before, so a merge has no news in their number.
    assert first_due(job, seen(store, version), replace(OLD, segments=1)) == expected


def test_merge_is_due_when_there_are_enough_new_segments(store: Store) -> None:
    at = seen(store, NEWS)
    assert is_due("merge", at, replace(OLD, segments=1 - MERGE_SEGMENTS), T0)
    assert not is_due("merge", at, replace(OLD, segments=2 - MERGE_SEGMENTS), T0)
    assert is_due("merge", at, replace(OLD, segments=1, found_work=True), T0)


def test_job_that_takes_long_rests_longer(store: Store) -> None:
    slow = replace(OLD, took_ms=MINUTE_MS)
    assert first_due("compaction", seen(store, NEWS), slow) == REST * MINUTE_MS
    useful = replace(slow, found_work=True)
    assert first_due("compaction", seen(store, NEWS), useful) == REST_AFTER_WORK * MINUTE_MS


def test_failed_job_waits_longer_each_time(store: Store) -> None:
    waits = [
        first_due("publication", seen(store, NEWS), replace(OLD, failures=count))
        for count in (1, 2, 3, 100)
    ]
    assert waits == [2_000, 4_000, 8_000, LONGEST_WAIT_MS]


def test_format_that_fails_waits_longer_each_time_and_the_others_do_not(store: Store) -> None:
    quiet, news = (
        seen(store, version, publish_formats="delta,iceberg", publish_max_lag_ms=1)
        for version in (QUIET, NEWS)
    )
    for failures, wait_ms in [(1, 2_000), (2, 4_000), (100, LONGEST_WAIT_MS)]:
        last = replace(OLD, failing={"iceberg": Failing(failures, T0)})
        assert first_due("publication", news, last) == 0
        assert first_due("publication", quiet, last) == wait_ms
        assert last.waiting(T0 + wait_ms - 1) == {"iceberg"}
        assert last.waiting(T0 + wait_ms) == set()
    both = replace(OLD, failing={name: Failing(2, T0) for name in ("delta", "iceberg")})
    assert first_due("publication", news, both) == 4_000
    gone = replace(OLD, failing={"hudi": Failing(1, T0)})
    assert first_due("publication", quiet, gone) == CHECK_MS


def test_table_that_somebody_has_removed_comes_back(store: Store) -> None:
    assert first_due("publication", seen(store, QUIET, publish_formats="delta"), OLD) == CHECK_MS


def test_mirror_that_copies_groups_looks_without_news(store: Store) -> None:
    """Commits of groups make no version of the topic."""
    at = seen(store, QUIET)
    for after_ms, expected in ((GROUPS_MS - 1, []), (GROUPS_MS, ["mirror"])):
        due = due_jobs(at, {"mirror": OLD}, ["mirror"], LOOK_MS, T0 + after_ms, copies_groups=True)
        assert due == expected


def test_job_that_works_for_long_before_it_fails_rests_longer(store: Store) -> None:
    """Otherwise it would keep others waiting nearly all the time."""
    slow = replace(OLD, failures=1, took_ms=60 * MINUTE_MS)
    assert first_due("compaction", seen(store, NEWS), slow) == REST_AFTER_WORK * 60 * MINUTE_MS


@pytest.mark.parametrize("took_ms", [0, 100, 300])
def test_publication_comes_before_60_percent_of_the_lag_have_passed(
    store: Store, took_ms: int
) -> None:
    """If it waited for the next look, it would be later than that."""
    at = seen(store, NEWS, publish_formats="delta", publish_max_lag_ms=2000)
    due = first_due("publication", at, replace(OLD, took_ms=took_ms))
    assert due is not None
    assert due - 1 + LOOK_MS + took_ms == 1_200


def test_published_topic_is_looked_at_as_often_as_its_lag_needs(store: Store) -> None:
    at = seen(store, publish_formats="delta", publish_max_lag_ms=2000)
    assert look_after_ms(at, ["publication"], 60_000, T0) == 500
    assert look_after_ms(at, ["publication"], 100, T0) == 100
    assert look_after_ms(at, ["publication"], 60_000, T0 + 2 * MINUTE_MS) == 1_000
    assert look_after_ms(at, ["merge"], 60_000, T0) == 60_000


def test_smallest_lag_does_not_ask_the_store_all_the_time(store: Store) -> None:
    at = seen(store, publish_formats="delta", publish_max_lag_ms=1)
    assert look_after_ms(at, ["publication"], 1_000, T0) == LEAST_LOOK_MS
    assert look_after_ms(at, ["publication"], 1_000, T0 + 60 * MINUTE_MS) == LEAST_LOOK_MS
    assert look_after_ms(at, ["publication"], 10, T0) == 10


def test_quiet_topic_is_looked_at_less_often(store: Store) -> None:
    at = seen(store)
    assert look_after_ms(at, ["merge"], 1_000, T0) == 1_000
    assert look_after_ms(at, ["merge"], 1_000, T0 + MINUTE_MS) == 15_000
    assert look_after_ms(at, ["merge"], 1_000, T0 + 60 * MINUTE_MS) == QUIET_LOOK_MS
    assert look_after_ms(at, ["merge"], 90_000, T0 + 60 * MINUTE_MS) == 90_000
    assert look_after_ms(at, ["mirror"], 1_000, T0 + 60 * MINUTE_MS) == 1_000
